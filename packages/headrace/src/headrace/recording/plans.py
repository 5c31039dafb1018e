"""Plans in JSON: what a client sends and a server reads.

A plan is a list of nodes, each naming earlier ones by their place; the last is the plan itself. So a DataFrame that is
used twice is sent once, columns stay columns of the very DataFrame they were taken from, and nothing can refer to
itself. `from_json` takes nothing on trust: what it gives back holds listed names and plain values only.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from headrace.errors import NotAllowed, UserError
from headrace.recording import allowed
from headrace.recording.allowed import Kind
from headrace.recording.tree import (
    Call,
    ColumnOf,
    Function,
    Kept,
    Lambda,
    LocalRows,
    LocalTable,
    NewWindow,
    Node,
    Parameter,
    Part,
    Query,
    Table,
    in_order,
    parameters_of,
)
from headrace.recording.values import Decoder, bad_plan, from_plain, to_plain, whole_text

MAX_NODES = 20_000
"""Spark's analysis is no longer useful long before this."""
MAX_ROWS_BYTES = 8 * 1024 * 1024
FORMAT = 1


def to_json(root: Node) -> dict[str, Any]:
    """The plan for a server."""
    ordered = in_order(root)
    if len(ordered) > MAX_NODES:
        raise NotAllowed(
            f"This DataFrame is made of {len(ordered)} calls; {MAX_NODES} can be sent.",
            hint="Keep what it is made of with cache_result(), or write it as SQL.",
        )
    places = {node: place for place, node in enumerate(ordered)}
    return {"format": FORMAT, "nodes": [_written(node, places) for node in ordered]}


def _written(node: Node, places: Mapping[Node, int]) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return to_plain(value, lambda part: places[cast(Node, part)])

    def given(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        written: dict[str, Any] = {"arguments": [plain(each) for each in arguments]}
        return {**written, "named": {key: plain(each) for key, each in named.items()}} if named else written

    match node:
        case Table(name, consume):
            return {"op": "table", "name": name, "consume": consume}
        case Query(text):
            return {"op": "query", "text": text}
        case LocalTable(arrow, schema, of_pandas):
            text = base64.b64encode(arrow).decode("ascii")
            return {"op": "local_table", "arrow": text, "schema": plain(schema), "pandas": of_pandas}
        case LocalRows(rows, schema):
            return {"op": "local_rows", "rows": [plain(row) for row in rows], "schema": plain(schema)}
        case Kept(name):
            return {"op": "kept", "name": name}
        case Call(on, method, arguments, named):
            return {"op": "call", "on": places[on], "method": method, **given(arguments, named)}
        case Part(on, weights, seed, place):
            return {"op": "part", "on": places[on], "weights": list(weights), "seed": seed, "place": place}
        case Function(name, arguments, named):
            return {"op": "function", "name": name, **given(arguments, named)}
        case ColumnOf(of, item):
            return {"op": "column_of", "of": places[of], "item": item}
        case NewWindow(method, arguments):
            return {"op": "window", "method": method, **given(arguments, {})}
        case Parameter():
            return {"op": "parameter"}
        case Lambda(parameters, body):
            return {"op": "lambda", "parameters": [places[each] for each in parameters], "body": places[body]}
        case _:
            raise TypeError(f"{node!r} is no node of a plan")


# ---------------------------------------------------------------------- from JSON


def from_json(plan: Any) -> Node:
    """The node that a plan describes. Whatever the plan is, the answer is a node or a `UserError`."""
    if not isinstance(plan, dict) or set(plan) != {"format", "nodes"}:
        raise bad_plan("it must have exactly the fields format and nodes")
    if plan["format"] != FORMAT or isinstance(plan["format"], bool):
        raise UserError(
            f"This server reads plans of format {FORMAT}.", hint="Use the same version of headrace on both sides."
        )
    written = plan["nodes"]
    if not isinstance(written, list) or not 0 < len(written) <= MAX_NODES:
        raise bad_plan(f"nodes must be a list of 1 to {MAX_NODES}")
    nodes: list[Node] = []
    for place, each in enumerate(written):
        nodes.append(_read(each, place, nodes))
    root = nodes[-1]
    ordered = in_order(root)
    if len(ordered) != len(nodes):
        raise bad_plan("it has nodes that nothing uses")
    if parameters_of(ordered)[root]:
        raise bad_plan("a parameter stands outside its lambda")
    return root


def _read(written: Any, place: int, nodes: Sequence[Node]) -> Node:
    if not isinstance(written, dict) or not isinstance(written.get("op"), str):
        raise bad_plan(f"node {place} must be an object with an op")
    reader = _READERS.get(written["op"])
    if reader is None:
        raise bad_plan(f"node {place} has the unknown op {written['op'][:50]!r}")
    fields = _Fields(written, place, nodes)
    node = reader(fields)
    fields.require_all_read()
    return node


class _Fields:
    """The fields of one node, each read once and checked."""

    def __init__(self, written: Mapping[str, Any], place: int, nodes: Sequence[Node]) -> None:
        self._written = written
        self._place = place
        self._nodes = nodes
        self._read = {"op"}

    def bad(self, why: str) -> UserError:
        return bad_plan(f"node {self._place}: {why}")

    def raw(self, name: str, default: Any = ...) -> Any:
        self._read.add(name)
        found = self._written.get(name, default)
        if found is ...:
            raise self.bad(f"{name} is missing")
        return found

    def text(self, name: str) -> str:
        found = self.raw(name)
        if not isinstance(found, str) or not found:
            raise self.bad(f"{name} must be a text")
        return whole_text(found)

    def whole(self, name: str) -> int:
        found = self.raw(name)
        if not isinstance(found, int) or isinstance(found, bool) or not -(2**63) <= found < 2**63:
            raise self.bad(f"{name} must be a whole number")
        return found

    def flag(self, name: str) -> bool:
        found = self.raw(name)
        if not isinstance(found, bool):
            raise self.bad(f"{name} must be true or false")
        return found

    def listed(self, name: str) -> list[Any]:
        found = self.raw(name)
        if not isinstance(found, list):
            raise self.bad(f"{name} must be a list")
        return found

    def node_at(self, place: Any, *kinds: Kind) -> Node:
        if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < len(self._nodes):
            raise self.bad("it names a node that is not before it")
        found = self._nodes[place]
        if kinds and found.kind not in kinds:
            raise self.bad(f"a {' or '.join(kinds)} is needed, not a {found.kind}")
        return found

    def node(self, name: str, *kinds: Kind) -> Node:
        return self.node_at(self.raw(name), *kinds)

    def value(self, name: str, default: Any = ...) -> Any:
        return self.values([self.raw(name, default)])[0]

    def values(self, written: Sequence[Any]) -> tuple[Any, ...]:
        decoder: Decoder = lambda place: self.node_at(place)  # noqa: E731
        return tuple(from_plain(each, decoder) for each in written)

    def arguments(self) -> tuple[Any, ...]:
        return self.values(self.listed("arguments"))

    def named(self) -> dict[str, Any]:
        found = self.raw("named", {})
        if not isinstance(found, dict) or not all(isinstance(key, str) and key.isidentifier() for key in found):
            raise self.bad("named must be an object")
        if any(key.startswith("_") for key in found):
            raise self.bad("named has a name that begins with an underscore")
        return {key: self.values([each])[0] for key, each in found.items()}

    def require_all_read(self) -> None:
        unknown = set(self._written) - self._read
        if unknown:
            raise self.bad(f"it has the unknown field {min(unknown)[:50]!r}")


def _read_call(fields: _Fields) -> Node:
    on = fields.node("on", "frame", "groups", "column", "window")
    method = fields.text("method")
    if method not in allowed.METHODS[on.kind]:
        raise NotAllowed(
            f"A {on.kind} has no method {method[:50]!r} in a plan.",
            hint="docs/python.md tells what works over a URL.",
        )
    call = Call(on, method, fields.arguments(), fields.named())
    _refuse_places(fields, (call.arguments, call.named))
    return call


def _read_function(fields: _Fields) -> Node:
    name = fields.text("name")
    if name not in allowed.FUNCTIONS:
        raise NotAllowed(
            f"There is no function {name[:50]!r} in a plan.", hint="docs/python.md tells what works over a URL."
        )
    found = Function(name, fields.arguments(), fields.named())
    _refuse_places(fields, (found.arguments, found.named))
    return found


def _refuse_places(fields: _Fields, value: Any) -> None:
    """Some options of from_xml and the like name files of the machine that reads them."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            if isinstance(key, str) and key.lower().endswith("path"):
                raise NotAllowed(f"The option {key[:50]} names a place on the server.", hint="Leave it out.")
            _refuse_places(fields, each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _refuse_places(fields, each)


def _read_part(fields: _Fields) -> Node:
    on, weights = fields.node("on", "frame"), fields.listed("weights")
    if not all(isinstance(each, (int, float)) and not isinstance(each, bool) and each >= 0 for each in weights):
        raise fields.bad("weights must be numbers")
    place = fields.whole("place")
    if not 0 <= place < len(weights) <= 1000:
        raise fields.bad("place must be that of a weight")
    return Part(on, tuple(float(each) for each in weights), fields.whole("seed"), place)


def _read_column_of(fields: _Fields) -> Node:
    of, item = fields.node("of", "frame"), fields.raw("item")
    if not isinstance(item, (str, int)) or isinstance(item, bool):
        raise fields.bad("item must be a name or a number")
    return ColumnOf(of, whole_text(item) if isinstance(item, str) else item)


def _read_window(fields: _Fields) -> Node:
    method = fields.text("method")
    if method not in allowed.WINDOW_METHODS:
        raise fields.bad(f"a window has no method {method[:50]!r}")
    return NewWindow(method, fields.arguments())


def _read_lambda(fields: _Fields) -> Node:
    parameters = [fields.node_at(place) for place in fields.listed("parameters")]
    if not 1 <= len(parameters) <= 3 or not all(isinstance(each, Parameter) for each in parameters):
        raise fields.bad("a lambda has one to three parameters")
    if len(set(parameters)) < len(parameters):
        raise fields.bad("a lambda has each parameter once")
    return Lambda(tuple(cast(Parameter, each) for each in parameters), fields.node("body", "column"))


def _read_local_table(fields: _Fields) -> Node:
    try:
        arrow = base64.b64decode(fields.text("arrow"), validate=True)
    except (binascii.Error, ValueError):
        raise fields.bad("arrow must be base64") from None
    if len(arrow) > MAX_ROWS_BYTES:
        raise too_big(len(arrow))
    return LocalTable(arrow, fields.value("schema"), fields.flag("pandas"))


def too_big(size: int) -> UserError:
    return UserError(
        f"This DataFrame holds {size / 1024 / 1024:.1f} MiB of rows of this program; 8 MiB can be sent at once.",
        hint='Send it in parts: create_dataframe(part).write.save_as_table(name, mode="append").',
    )


_READERS: dict[str, Callable[[_Fields], Node]] = {
    "table": lambda fields: Table(fields.text("name"), fields.flag("consume")),
    "query": lambda fields: Query(fields.text("text")),
    "local_table": _read_local_table,
    "local_rows": lambda fields: LocalRows(fields.values(fields.listed("rows")), fields.value("schema", None)),
    "kept": lambda fields: Kept(fields.text("name")),
    "call": _read_call,
    "part": _read_part,
    "function": _read_function,
    "column_of": _read_column_of,
    "window": _read_window,
    "parameter": lambda fields: Parameter(),
    "lambda": _read_lambda,
}
