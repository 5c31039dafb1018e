"""A process of its own for the fault tests: `worker.py LAKE ACTION…`. Prints one JSON line for each action.

Actions: `setup`, `change N` (new rows), `refresh` (dying where the action `fail NAME` before it says), `sql TEXT`,
`refused TEXT` (a statement that must end in an error of ours), `settle` (refresh both tables and verify them),
`history`, `fill` (write until the lake's disk is full), `free` (undo that), `tick TIME` (let the scheduler do what is
due at that time).
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from datetime import datetime

import headrace
from headrace import Lake
from headrace.errors import HeadraceError

FILLER = "filler"
TABLES = ("clean", "totals")


def setup(lake: Lake) -> object:
    lake.sql(
        """
        CREATE TABLE raw (id INT, kind STRING, amount DOUBLE);
        INSERT INTO raw SELECT id, concat('k', id % 3), id / 4 FROM range(40);
        CREATE DYNAMIC TABLE clean AS SELECT id, upper(kind) AS kind, amount FROM raw WHERE id % 10 <> 9;
        CREATE DYNAMIC TABLE totals AS SELECT kind, count(*) AS n, sum(amount) AS total, max(id) AS last
        FROM clean GROUP BY kind
        """
    )
    return "ready"


def change(lake: Lake, number: int) -> object:
    lake.sql(f"INSERT INTO raw VALUES ({number}, 'k{number % 4}', 1.5); UPDATE raw SET amount = {number} WHERE id = 3")
    lake.sql(f"DELETE FROM raw WHERE id = {number % 40 + 4}")
    return number


def refresh(lake: Lake) -> object:
    return [lake.sql(f"REFRESH DYNAMIC TABLE {name}").rows[0][10] for name in TABLES]


def settle(lake: Lake) -> object:
    modes = refresh(lake)
    verdicts = [lake.sql(f"VERIFY DYNAMIC TABLE {name}").rows[0][1] for name in TABLES]
    return {"modes": modes, "verdicts": verdicts}


def history(lake: Lake) -> object:
    result = lake.sql(
        "SELECT name, state, refresh_mode, reason, error_message FROM (SHOW DYNAMIC TABLE REFRESH HISTORY)"
    )
    return [list(row) for row in result.rows]


def refused(lake: Lake, text: str) -> object:
    try:
        return {"answer": [list(map(str, row)) for row in lake.sql(text).rows]}
    except HeadraceError as error:
        return {"code": error.code, "message": error.message}


def tick(lake: Lake, time: str) -> object:
    now = datetime.fromisoformat(time)
    scheduler = lake.start_scheduler(guarded=False, clock=lambda: now, thread=False)
    assert scheduler.settle(120), scheduler.status()
    names = {table.id: table.name for table in lake.store.tables()}
    lake.stop_scheduler()
    return {names[mark.object_id]: [mark.state, mark.failures] for mark in lake.store.marks.all()}


def fill(lake: Lake) -> object:
    """Take every byte that is left, the last ones one by one."""
    block = 1 << 20
    with (lake.settings.path / FILLER).open("ab", buffering=0) as filler:
        while block:
            try:
                filler.write(b"x" * block)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                block //= 2
    return shutil.disk_usage(lake.settings.path).free


def free(lake: Lake) -> object:
    (lake.settings.path / FILLER).unlink()
    return shutil.disk_usage(lake.settings.path).free


PLAIN = {"setup": setup, "refresh": refresh, "settle": settle, "history": history, "fill": fill, "free": free}


def main(folder: str, actions: list[str]) -> None:
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.sql.codegen.wholeStage": "false"}
    with headrace.open(folder, spark_master="local[2]", driver_memory="2g", spark_settings=quick) as lake:
        for action in actions:
            name, _, argument = action.partition(" ")
            if name == "fail":
                os.environ["HEADRACE_FAILPOINT"] = argument
                continue
            if name == "sql":
                found: object = [list(map(str, row)) for row in lake.sql(argument).rows]
            elif name == "change":
                found = change(lake, int(argument))
            elif name == "refused":
                found = refused(lake, argument)
            elif name == "tick":
                found = tick(lake, argument)
            else:
                found = PLAIN[name](lake)
            print(json.dumps({action: found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
