"""Reading changes through a table stream, next to the same read of Delta's change feed by hand."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass

from headrace import Lake

COLUMNS = "id, name, amount"
CHANGES = "SELECT id, concat('n', id % 1000) AS name, CAST(id AS DECIMAL(12,2)) AS amount FROM range({rows})"


@dataclass(frozen=True)
class StreamTiming:
    changes: int
    stream_s: float
    by_hand_s: float

    @property
    def ratio(self) -> float:
        return self.stream_s / self.by_hand_s

    def as_dict(self) -> dict[str, object]:
        return asdict(self) | {"ratio": self.ratio}


def consuming(lake: Lake, sizes: list[int], rounds: int) -> list[StreamTiming]:
    """INSERT … SELECT of so many new rows, both ways, in turns; medians."""
    lake.sql(
        f"""
        CREATE TABLE changing AS {CHANGES.format(rows=1000)};
        CREATE TABLE STREAM changing_stream ON TABLE changing;
        CREATE TABLE through_stream AS SELECT {COLUMNS} FROM changing LIMIT 0;
        CREATE TABLE by_hand AS SELECT {COLUMNS} FROM changing LIMIT 0
        """
    )
    found = []
    for size in sizes:
        pairs = []
        for number in range(rounds + 2):
            lake.sql(f"INSERT INTO changing {CHANGES.format(rows=size)}")
            version = lake.sql("DESC HISTORY changing LIMIT 1").rows[0][0]
            texts = (
                f"INSERT INTO through_stream SELECT {COLUMNS} FROM changing_stream",
                f"INSERT INTO by_hand SELECT {COLUMNS} FROM table_changes('changing', {version}, {version})",
            )
            # Whoever comes first finds a version that Spark has not seen: so they take turns at it.
            order = (0, 1) if number % 2 else (1, 0)
            times = {place: _seconds(lake, texts[place]) for place in order}
            pairs.append((times[0], times[1]))
        # The first two rounds warm the JVM up.
        stream_s, by_hand_s = (statistics.median(times) for times in zip(*pairs[2:], strict=True))
        found.append(StreamTiming(size, stream_s, by_hand_s))
        print(f"  {size} changes: {stream_s:.2f} s, by hand {by_hand_s:.2f} s, {found[-1].ratio:.2f}×", flush=True)
    counts = {name: lake.sql(f"SELECT count(*) FROM {name}").rows[0][0] for name in ("through_stream", "by_hand")}
    if len(set(counts.values())) != 1:
        raise SystemExit(f"different numbers of rows: {counts}")
    lake.sql("DROP TABLE STREAM changing_stream; DROP TABLE changing; DROP TABLE through_stream; DROP TABLE by_hand")
    return found


def _seconds(lake: Lake, text: str) -> float:
    began = time.perf_counter()
    lake.sql(text)
    return time.perf_counter() - began
