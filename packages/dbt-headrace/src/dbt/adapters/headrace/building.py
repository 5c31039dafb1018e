"""What dbt makes on its way to a model: names for it, how it takes the model's place, and how it is cleared away.

While something of another kind has a model's name, the new one is built beside it. Then two statements follow: what was
there is dropped, and the new one gets the name. They are not interrupted, and what cannot finish is kept: whoever finds
a relation beside its place knows that it is complete, because one statement made it, and gives it that place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.relation import BaseRelation
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.headrace.relation import HeadraceRelationType

if TYPE_CHECKING:
    from dbt.adapters.headrace.impl import HeadraceAdapter

TEMPORARY = "__dbt_tmp"
BESIDE = "__dbt_new"
OLD = timedelta(days=1)
"""After so long, nobody is still at work on what a build has made for itself."""
_LONGEST = 200
"""Of a name in the lake's catalog."""


@dataclass(frozen=True)
class Swap:
    """What is built beside what has its name."""

    built: BaseRelation
    existing: BaseRelation
    target: BaseRelation


@dataclass
class Building:
    """What the node of a connection has under way."""

    leftovers: list[BaseRelation] = field(default_factory=list)
    """To be dropped when the node has ended, however it ends."""
    swap: Swap | None = None

    def forget(self, relation: BaseRelation) -> None:
        self.leftovers = [each for each in self.leftovers if each != relation]
        if self.swap is not None and self.swap.built == relation:
            self.swap = None


def named_after(identifier: str, suffix: str) -> str:
    """The name with the suffix; of a long one only its beginning, and what tells it from others.

    >>> named_after("trips", "__dbt_new"), len(named_after("t" * 200, "__dbt_new"))
    ('trips__dbt_new', 200)
    """
    if len(identifier) + len(suffix) <= _LONGEST:
        return identifier + suffix
    mark = "_" + hashlib.sha256(identifier.encode()).hexdigest()[:8]
    return identifier[: _LONGEST - len(suffix) - len(mark)] + mark + suffix


def staging_name(identifier: str, mark: str) -> str:
    """Of a table that one process makes on its way: another at work on the same model has its own."""
    return named_after(identifier, f"{TEMPORARY}_{mark}")


def is_made_for(identifier: str, name: str) -> bool:
    """Whether what is made on the way to a relation may have this name.

    >>> [is_made_for("trips", name) for name in ("trips__dbt_new", "trips__dbt_tmp_1", "trips_new")]
    [True, True, False]
    """
    return name == named_after(identifier, BESIDE) or name.startswith(named_after(identifier, TEMPORARY))


def strays(identifier: str, there: Iterable[BaseRelation], mark: str) -> Iterator[BaseRelation]:
    """What other processes have made on their way to the same model."""
    prefix = staging_name(identifier, mark).removesuffix(f"_{mark}").lower()
    for relation in there:
        name = (relation.identifier or "").lower()
        if name.startswith(prefix) and not name.endswith(mark.lower()):
            yield relation


def temporary_view(relation: BaseRelation, suffix: str) -> BaseRelation:
    """A view with the name of one level: that of a session."""
    found = _renamed(relation, named_after(relation.identifier or "", suffix), HeadraceRelationType.View)
    return found.include(database=False, schema=False)


def _renamed(relation: BaseRelation, name: str, kind: Any) -> BaseRelation:
    found: BaseRelation = relation.incorporate(path={"identifier": name}, type=kind)  # type: ignore[no-untyped-call]
    return found


class Builder:
    """Keeps account of what the node of this thread's connection has under way, and ends it."""

    def __init__(self, adapter: HeadraceAdapter) -> None:
        self._adapter = adapter

    @property
    def under_way(self) -> Building:
        connection = self._adapter.connections.get_if_exists()
        found: Building | None = getattr(connection, "building", None)
        if found is None:
            found = Building()
            if connection is not None:
                connection.building = found  # type: ignore[attr-defined]
        return found

    def begin(self) -> None:
        self._adapter.connections.get_thread_connection().building = Building()  # type: ignore[attr-defined]

    def end(self) -> None:
        """The node has ended, well or not: clear away what it has left."""
        building = self.under_way
        if not building.leftovers and building.swap is None:
            return
        with self._adapter.connections.get_thread_connection().handle.tidying():
            for relation in building.leftovers:
                _try(self._adapter.drop_relation, relation)
            if building.swap is not None:
                self._finish(building.swap)

    def staging_table(self, relation: BaseRelation, mark: str) -> BaseRelation:
        """What others have left a day ago or more is dropped."""
        name = relation.identifier or ""
        there = self._adapter.list_relations(relation.database, relation.schema or "")
        for stray in list(strays(name, there, mark)):
            with suppress(DbtRuntimeError):  # Whose it is may have dropped it by now.
                changed = self._adapter.last_changed(stray)
                if changed is not None and datetime.now(changed.tzinfo) - changed > OLD:
                    self._adapter.drop_relation(stray)
        return _renamed(relation, staging_name(name, mark), HeadraceRelationType.Table)

    def built_beside(self, existing: BaseRelation, target: BaseRelation) -> BaseRelation:
        built = self._beside(target)
        there = self._adapter.get_relation(built.database, built.schema, built.identifier)
        if there is not None:
            self._adapter.drop_relation(there)
        self.under_way.swap = Swap(built, existing, target)
        return built

    def put_in_place(self) -> None:
        """This is not interrupted: what was there is gone then, and the new rows may have been taken from a table
        stream."""
        swap = self.under_way.swap
        if swap is not None:
            with self._adapter.connections.get_thread_connection().handle.tidying():
                self._swap(swap)

    def settle_interrupted(self, target: BaseRelation) -> bool:
        """Whatever stands beside its place gets it, unless something of its kind is there: then it was not built to
        take that one's. Tells whether something got its place."""
        beside = self._beside(target)
        built = self._adapter.get_relation(beside.database, beside.schema, beside.identifier)
        if built is None:
            return False
        existing = self._adapter.get_relation(target.database, target.schema, target.identifier)
        place = _renamed(target, target.identifier or "", built.type)
        if existing is None or existing.type == HeadraceRelationType.Function:
            self._adapter.rename_relation(built, place)
        elif existing.type in (built.type, HeadraceRelationType.External):
            self._adapter.drop_relation(built)
            return False
        else:
            self._swap(Swap(built, existing, place))
        return True

    def _beside(self, target: BaseRelation) -> BaseRelation:
        return _renamed(target, named_after(target.identifier or "", BESIDE), target.type)

    def _swap(self, swap: Swap) -> None:
        self._adapter.drop_relation(swap.existing)
        self._adapter.rename_relation(swap.built, swap.target)

    def _finish(self, swap: Swap) -> None:
        """The node has ended before its relation was in its place. Whether that was built, the lake tells: then it is
        complete, and may hold what nobody can take again."""
        adapter = self._adapter
        if not adapter.is_there(swap.built):
            return
        if adapter.is_there(swap.existing):
            _try(adapter.drop_relation, swap.existing)
        if adapter.is_there(swap.existing):
            _try(adapter.drop_relation, swap.built)
        else:
            _try(adapter.rename_relation, swap.built, swap.target)


def _try(work: Callable[..., None], *relations: BaseRelation) -> None:
    """The node's own error is the one to tell; the next run does what is left."""
    with suppress(DbtRuntimeError):
        work(*relations)
