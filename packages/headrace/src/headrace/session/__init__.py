"""Python sessions: `Session.builder.configs({…}).create()`, then SQL, tables, streams and DataFrames.

A session works in a lake that is open in this process, or on a server. What differs stands behind two classes of the
same face: `session.embedded.LakeFrames`, whose DataFrames are PySpark's, and `recording.session.RemoteFrames`, whose
DataFrames are written down and sent. The second needs neither PySpark nor Java, so each is loaded when it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import headrace
from headrace.client.lake import RemoteLake, connect
from headrace.errors import BadSetting
from headrace.functions import Window
from headrace.names import parse_parts, quote

if TYPE_CHECKING:
    from headrace.engine import Lake
    from headrace.recording.frames import DataFrame as RecordedFrame
    from headrace.session.frames import DataFrame

__all__ = ["DataFrame", "Session", "Window"]

_KEYS = (
    "username", "password", "token", "service", "ca_file", "instance", "workspace", "schema", "vcluster", "path",
)  # fmt: skip
_EMBEDDED = "embedded"


def __getattr__(name: str) -> Any:
    if name == "DataFrame":
        from headrace.session.frames import DataFrame

        return DataFrame
    raise AttributeError(f"module 'headrace.session' has no attribute {name!r}")


class Builder:
    """Collects the connection's values; `create` opens it."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def config(self, key: str, value: Any) -> Builder:
        return self.configs({key: value})

    def configs(self, values: Mapping[str, Any]) -> Builder:
        for key in values:
            if key not in _KEYS:
                raise BadSetting(f"A session has no setting '{key}'.", hint=f"The settings are {', '.join(_KEYS)}.")
        self._values |= values
        return self

    def create(self) -> Session:
        service = str(self._values.get("service", _EMBEDDED))
        if service.startswith(("http://", "https://")):
            return self._connected(service)
        if service != _EMBEDDED:
            raise BadSetting(
                f"'{service}' is no service.",
                hint="Write service: a server's address such as http://127.0.0.1:8910; or service: 'embedded' and "
                "path: the folder of a lake, which is opened in this process.",
            )
        return self._opened()

    def _connected(self, service: str) -> Session:
        if self._values.get("path"):
            raise BadSetting(
                "A session has a service or a path, not both.",
                hint="The lake of a server is where the server has it: leave path out.",
            )
        wanted = ("username", "password", "token", "vcluster", "ca_file")
        schema, workspace = self._values.get("schema"), self._values.get("workspace")
        if schema is not None:
            parts = parse_parts(schema)
            parts = (str(workspace), *parts) if workspace and len(parts) == 1 else parts
            schema = ".".join(map(quote, parts))
        return Session(connect(service, schema=schema, **{key: self._values.get(key) for key in wanted}))

    def _opened(self) -> Session:
        if not self._values.get("path"):
            raise BadSetting("An embedded session needs a path.", hint="path: the folder of the lake, new or not.")
        # Who the user is counts only when a server holds the lake: one that is opened here has no users.
        wanted = ("workspace", "username", "password", "token", "ca_file")
        lake = headrace.open(Path(str(self._values["path"])), **{key: self._values.get(key) for key in wanted})
        try:
            schema = self._values.get("schema")
            if schema is not None:
                lake.sql(f"USE {'.'.join(map(quote, parse_parts(schema)))}")
            return Session(lake, vcluster=self._values.get("vcluster"))
        except BaseException:
            lake.close()
            raise


class _BuilderForEach:
    """`Session.builder` is a new builder each time."""

    def __get__(self, instance: object, owner: type) -> Builder:
        return Builder()


class _Frames(Protocol):
    """Where DataFrames begin."""

    def sql(self, text: str) -> Any: ...

    def table(self, name: str, consume: bool = True) -> Any: ...

    def create_dataframe(self, data: Any, schema: Any = None) -> Any: ...


class Session:
    """An open connection. Use it as a context manager, or call `close()`. It shares the lake's current schema, settings
    and temporary views; one made with a schema has its own."""

    builder = _BuilderForEach()

    def __init__(self, lake: Lake | RemoteLake, *, schema: str | None = None, vcluster: str | None = None) -> None:
        self.lake = lake
        self._frames = _frames(lake, schema, vcluster)

    def sql(self, text: str) -> DataFrame | RecordedFrame:
        """A statement. A query can be worked on like a table; any other statement runs once, at the first action."""
        found: DataFrame | RecordedFrame = self._frames.sql(text)
        return found

    def table(self, name: str, consume: bool = True) -> DataFrame | RecordedFrame:
        """A table, view, dynamic table or table stream. A stream's offset moves when its rows are delivered or written,
        unless `consume` is False."""
        found: DataFrame | RecordedFrame = self._frames.table(name, consume)
        return found

    def create_dataframe(self, data: Any, schema: Any = None) -> DataFrame | RecordedFrame:
        """Rows of this program: a list of rows, tuples or dicts, a pandas DataFrame or an Arrow table."""
        found: DataFrame | RecordedFrame = self._frames.create_dataframe(data, schema)
        return found

    def __getattr__(self, name: str) -> Any:
        if name == "createDataFrame":
            return self.create_dataframe
        raise AttributeError(f"A session has no attribute {name!r}.")

    def close(self) -> None:
        """Close the lake: an embedded one stops Spark and is free for others, one on a server ends its session."""
        self.lake.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _frames(lake: Lake | RemoteLake, schema: str | None, vcluster: str | None) -> _Frames:
    if not isinstance(lake, RemoteLake):
        from headrace.session.embedded import LakeFrames

        return LakeFrames(lake, schema=schema, vcluster=vcluster)
    from headrace.recording.session import RemoteFrames

    if schema is not None:
        lake.sql(f"USE {'.'.join(map(quote, parse_parts(schema)))}")
    if vcluster is not None:
        lake.sql(f"USE VCLUSTER {quote(vcluster)}")
    return RemoteFrames(lake)
