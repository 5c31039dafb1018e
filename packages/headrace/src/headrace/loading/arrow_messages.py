"""A look at the messages of an Arrow stream before any of them is taken apart.

Arrow trusts what a message says about itself: how large its buffers are when unpacked, which bytes are to be swapped,
what is to be appended to an earlier dictionary. From a stranger only plain messages are taken; these few fields are
read here from their Flatbuffers, where every step is checked.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from headrace.loading.checked import BadBatch

_SCHEMA, _DICTIONARY, _ROWS = 1, 2, 3
"""Kinds of messages."""
_HINT = "Send an Arrow IPC stream, not compressed."


class _Table:
    """One table of a Flatbuffer; fields are numbered in the order of their declaration."""

    def __init__(self, buffer: memoryview, position: int) -> None:
        self._buffer = buffer
        self._position = position
        self._fields = position - _number("<i", buffer, position)
        self._size = _number("<H", buffer, self._fields)

    @classmethod
    def root(cls, buffer: memoryview) -> _Table:
        return cls(buffer, _number("<I", buffer, 0))

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        offset = _number("<H", self._buffer, self._fields + entry)
        return self._position + offset if offset else None

    def number(self, field: int, form: str) -> int:
        place = self._place(field)
        return 0 if place is None else _number(form, self._buffer, place)

    def table(self, field: int) -> _Table | None:
        place = self._place(field)
        return None if place is None else _Table(self._buffer, place + _number("<I", self._buffer, place))


def _number(form: str, buffer: memoryview, place: int) -> int:
    if place < 0:
        raise struct.error("a place before the beginning")
    return int(struct.unpack_from(form, buffer, place)[0])


def require_plain(stream: pa.Buffer) -> None:
    """Raise BadBatch unless this is a stream of messages that can be read without harm."""
    try:
        reader = pa.ipc.MessageReader.open_stream(stream)
        count = 0
        for message in reader:
            _look(memoryview(message.metadata))
            count += 1
    except (pa.ArrowException, struct.error, OSError, ValueError, MemoryError) as error:
        raise unreadable(error) from None
    if not count:
        raise BadBatch("The body is no Arrow stream: it is empty.", hint=_HINT)


def _look(metadata: memoryview) -> None:
    message = _Table.root(metadata)
    kind, header = message.number(1, "<B"), message.table(2)
    if header is None:
        raise struct.error("a message without a header")
    if kind == _SCHEMA:
        if header.number(0, "<h"):
            raise BadBatch("The Arrow stream is big-endian.", hint="Send it little-endian, as nearly everybody does.")
        return
    if kind not in (_DICTIONARY, _ROWS):
        raise BadBatch(f"The Arrow stream has a message of kind {kind}, which holds no rows.", hint=_HINT)
    rows = header
    if kind == _DICTIONARY:
        inner = header.table(1)
        if inner is None or header.number(2, "<B"):
            raise BadBatch("The Arrow stream has a dictionary that is an addition to another one.", hint=_HINT)
        rows = inner
    if rows.table(3) is not None:
        raise BadBatch("The Arrow stream has compressed buffers.", hint=_HINT)


def unreadable(error: Exception) -> BadBatch:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return BadBatch(f"The body cannot be read as an Arrow stream: {first[:200]}.", hint=_HINT)
