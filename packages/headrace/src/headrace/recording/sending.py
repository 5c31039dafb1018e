"""A plan on its way to the server, and the answer back."""

from __future__ import annotations

import json
import weakref
from collections import deque
from typing import Any

import pyarrow as pa

from headrace.client.lake import RemoteLake
from headrace.errors import NotAllowed
from headrace.recording.plans import to_json
from headrace.recording.tree import Kept, Node
from headrace.recording.values import recorded, to_plain

MAX_BODY = 8 * 1024 * 1024


class Sender:
    """Sends the actions of one session."""

    def __init__(self, lake: RemoteLake) -> None:
        self._lake = lake
        self.url = lake.url
        self._released: deque[str] = deque()

    def run(self, plan: Node, action: str, *arguments: Any) -> pa.Table:
        """Have the server do the action, and wait for its rows."""
        return self._lake.run("frames", self._body(plan, action, recorded(arguments))).to_arrow()

    def value(self, plan: Node, action: str, *arguments: Any) -> Any:
        """The answer of an action that gives one value instead of rows."""
        return json.loads(self.run(plan, action, *arguments).column(0)[0].as_py())

    def statement(self, text: str) -> pa.Table:
        """The rows of a statement that is no query."""
        return self._lake.sql(text).to_arrow()

    def kept(self, name: str) -> Kept:
        """The node of rows that the server keeps, until nobody here holds the node."""
        node = Kept(name)
        weakref.finalize(node, self._released.append, name)
        return node

    def _body(self, plan: Node, action: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
        released = [self._released.popleft() for _ in range(len(self._released))]
        body = {
            "plan": to_json(plan),
            "action": {"name": action, "arguments": [to_plain(each, _nowhere) for each in arguments]},
            "release": released,
        }
        size = len(json.dumps(body))
        if size > MAX_BODY:
            self._released.extend(released)
            raise NotAllowed(
                f"This DataFrame takes {size / 1024 / 1024:.1f} MiB to send; a server takes 8 MiB at once.",
                hint="Most of it are rows of create_dataframe. Send them in parts: "
                'create_dataframe(part).write.save_as_table(name, mode="append").',
            )
        return body


def _nowhere(_: Any) -> int:
    raise NotAllowed("An action takes values, not columns or DataFrames.", hint="Use select(…) or filter(…) before it.")
