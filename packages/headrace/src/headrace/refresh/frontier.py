"""Choosing the new frontier: versions of all sources that agree with each other.

Where a table reads both a base table and dynamic tables computed from it (a diamond), all of them must contain the same
version of the base. `choose` takes the newest such choice: it lowers a version only as far as agreement needs, and
when there is none it says who has to be refreshed first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """A version of a source, with the versions of everything upstream that it contains."""

    version: int
    lineage: dict[str, int]


@dataclass(frozen=True)
class Offer:
    """What one source has to offer, newest first. A plain table offers any version up to its newest one."""

    path: str
    """Identity of the table, `place#id`."""
    name: str
    newest: int
    is_dynamic: bool = False
    candidates: Callable[[], Iterable[Candidate]] = tuple
    """The versions of a dynamic table, newest first, read as they are asked for: usually the first one fits."""


@dataclass(frozen=True)
class Choice:
    versions: dict[str, int]
    lineage: dict[str, int]
    disagreement: str | None = None


def choose(offers: list[Offer]) -> Choice:
    """The newest versions that agree; `disagreement` is set when there are none."""
    caps: dict[str, int] = {offer.path: offer.newest for offer in offers}
    dynamic = [offer for offer in offers if offer.is_dynamic]
    chosen: dict[str, Candidate] = {}
    while True:
        for offer in dynamic:
            fitting = next((c for c in offer.candidates() if _fits(offer.path, c, caps)), None)
            if fitting is None:
                return Choice({}, {}, _wait_for(offer, dynamic))
            chosen[offer.path] = fitting
        lowered = _lowered(caps, chosen)
        if lowered == caps:
            break
        caps = lowered
    versions = {o.path: chosen[o.path].version if o.path in chosen else caps[o.path] for o in offers}
    lineage = dict(versions)
    for path, candidate in chosen.items():
        for upstream, version in candidate.lineage.items():
            if lineage.setdefault(upstream, version) != version:
                return Choice({}, {}, _wait_for(next(o for o in offers if o.path == path), dynamic))
    again = _recreated(lineage)
    if again is not None:
        return Choice({}, {}, f"{again} was dropped and created again. Refresh the tables that read it first.")
    return Choice(versions, lineage)


def _recreated(lineage: dict[str, int]) -> str | None:
    """A place that stands for two tables, an old and a new one, among identities of the form place#id."""
    tables: dict[str, str] = {}
    for identity in lineage:
        place, _, table = identity.partition("#")
        if tables.setdefault(place, table) != table:
            return place
    return None


def _fits(path: str, candidate: Candidate, caps: dict[str, int]) -> bool:
    if candidate.version > caps[path]:
        return False
    return all(version <= caps.get(upstream, version) for upstream, version in candidate.lineage.items())


def _lowered(caps: dict[str, int], chosen: dict[str, Candidate]) -> dict[str, int]:
    lowered = dict(caps)
    for path, candidate in chosen.items():
        lowered[path] = min(lowered[path], candidate.version)
        for upstream, version in candidate.lineage.items():
            lowered[upstream] = min(lowered.get(upstream, version), version)
    return lowered


def _wait_for(offer: Offer, dynamic: list[Offer]) -> str:
    names = ", ".join(sorted(other.name for other in dynamic))
    return (
        f"the tables upstream ({names}) were computed from different versions of their common sources; "
        f"{offer.name} has no version that agrees with the others. Refresh them first."
    )
