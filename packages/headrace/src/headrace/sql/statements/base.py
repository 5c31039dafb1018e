"""What all statements share."""

from __future__ import annotations

from dataclasses import dataclass, field

Parts = tuple[str, ...]


@dataclass(frozen=True)
class Statement:
    """`text` is what the user wrote, from the start of the given text, without a final `;`."""

    text: str


@dataclass(frozen=True)
class Suspend:
    pass


@dataclass(frozen=True)
class Resume:
    pass


@dataclass(frozen=True)
class SetComment:
    comment: str


@dataclass(frozen=True)
class SetProperties:
    properties: dict[str, str] = field(hash=False)
