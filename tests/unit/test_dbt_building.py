"""The dbt adapter without a lake: how a model takes its place, and how rows get the shape of their table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.headrace import nested
from dbt.adapters.headrace.building import Builder, temporary_view
from dbt.adapters.headrace.relation import HeadraceRelation, HeadraceRelationType

# Nested types


@pytest.mark.parametrize(
    ("given", "wanted", "expected"),
    [
        ("struct<a:int,b:int>", "struct<a:int,b:int>", "c"),
        (
            "struct<`b c`:int,a:int>", "struct<A:int,`b c`:int,d:date>",
            "if(c is null, null, named_struct('A', c.`a`, 'b c', c.`b c`, 'd', cast(null as date)))",
        ),
        (
            "array<struct<b:int,a:int>>", "array<struct<a:bigint,b:int>>",
            "transform(c, __dbt_1 -> if(__dbt_1 is null, null, "
            "named_struct('a', cast(__dbt_1.`a` as bigint), 'b', __dbt_1.`b`)))",
        ),
        (
            "map<string,struct<b:int,a:int>>", "map<string,struct<a:int,b:int>>",
            "transform_values(c, (__dbt_1_key, __dbt_1_value) -> if(__dbt_1_value is null, null, "
            "named_struct('a', __dbt_1_value.`a`, 'b', __dbt_1_value.`b`)))",
        ),
        (
            "map<struct<b:int,a:int>,int>", "map<struct<a:int,b:int>,int>",
            "transform_keys(c, (__dbt_1_key, __dbt_1_value) -> if(__dbt_1_key is null, null, "
            "named_struct('a', __dbt_1_key.`a`, 'b', __dbt_1_key.`b`)))",
        ),
        ("void", "struct<a:int>", "cast(c as struct<`a`:int>)"),
    ],
)  # fmt: skip
def test_fields_are_taken_by_their_names(given: str, wanted: str, expected: str) -> None:
    assert nested.by_name("c", given, wanted) == expected


def test_fields_that_the_table_does_not_have() -> None:
    with pytest.raises(DbtRuntimeError, match=r"c\.x has fields .* does not have: b\. Set on_schema_change"):
        nested.by_name("c", "struct<x:struct<a:int,b:int>>", "struct<x:struct<a:int>>")
    left = nested.by_name("c", "struct<a:int,b:int>", "struct<a:int>", leaves_out=True)
    assert left == "if(c is null, null, named_struct('a', c.`a`))"


# What is built on the way


class FakeConnections:
    """One connection, whose session counts how deep it is in what may not be interrupted."""

    def __init__(self) -> None:
        self.depth = 0
        self.connection = SimpleNamespace(handle=self)

    def get_if_exists(self) -> Any:
        return self.connection

    get_thread_connection = get_if_exists

    @contextmanager
    def tidying(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1


class FakeAdapter:
    """A schema with relations; one statement may fail."""

    def __init__(self, *there: HeadraceRelation, changed: datetime | None = None) -> None:
        self.there = {each.identifier: each for each in there}
        self.connections = FakeConnections()
        self.fails = ""
        self.ran: list[str] = []
        self.changed = changed

    def _run(self, text: str) -> None:
        self.ran.append(text)
        if self.fails and text.startswith(self.fails):
            self.fails = ""
            raise DbtRuntimeError("as it was meant")

    def get_relation(self, database: str, schema: str, identifier: str) -> HeadraceRelation | None:
        return self.there.get(identifier)

    def list_relations(self, database: str, schema: str) -> list[HeadraceRelation]:
        return list(self.there.values())

    def is_there(self, relation: HeadraceRelation) -> bool:
        return relation.identifier in self.there

    def last_changed(self, relation: HeadraceRelation) -> datetime | None:
        return self.changed

    def drop_relation(self, relation: HeadraceRelation) -> None:
        self.builder.under_way.forget(relation)
        self._run(f"drop {relation.identifier}")
        self.there.pop(relation.identifier, None)

    def rename_relation(self, old: HeadraceRelation, new: HeadraceRelation) -> None:
        self._run(f"rename {old.identifier} to {new.identifier}")
        self.there[new.identifier] = new
        del self.there[old.identifier]
        self.builder.under_way.forget(old)

    @property
    def builder(self) -> Builder:
        return Builder(self)  # type: ignore[arg-type]

    def kinds(self) -> dict[str | None, str]:
        return {name: str(each.type) for name, each in self.there.items()}


def relation(name: str, kind: str) -> HeadraceRelation:
    return HeadraceRelation.create(database="main", schema="dev", identifier=name, type=HeadraceRelationType(kind))


def test_what_is_built_beside_takes_its_place() -> None:
    adapter = FakeAdapter(relation("m", "view"))
    adapter.builder.begin()
    built = adapter.builder.built_beside(adapter.there["m"], relation("m", "table"))
    assert built.render() == "`main`.`dev`.`m__dbt_new`"
    adapter.there["m__dbt_new"] = built
    adapter.builder.put_in_place()
    adapter.builder.end()
    assert adapter.ran == ["drop m", "rename m__dbt_new to m"]
    assert adapter.kinds() == {"m": "table"}


@pytest.mark.parametrize(
    ("fails", "was_built", "kinds"),
    [
        ("drop m", True, {"m": "table"}),
        ("rename", True, {"m": "table"}),
        ("", False, {"m": "view"}),
        ("", True, {"m": "table"}),
    ],
    ids=["not dropped at first", "not renamed at first", "not built", "interrupted before its place was free"],
)
def test_neither_the_old_nor_the_new_is_lost(fails: str, was_built: bool, kinds: dict[str, str]) -> None:
    """A statement fails, or the node ends between two of them."""
    adapter = FakeAdapter(relation("m", "view"))
    adapter.builder.begin()
    built = adapter.builder.built_beside(adapter.there["m"], relation("m", "table"))
    if was_built:
        adapter.there["m__dbt_new"] = built
    adapter.fails = fails
    if fails:
        with pytest.raises(DbtRuntimeError):
            adapter.builder.put_in_place()
    adapter.builder.end()
    assert adapter.kinds() == kinds


def test_an_old_one_that_cannot_be_dropped_stays() -> None:
    class Stubborn(FakeAdapter):
        def drop_relation(self, relation: HeadraceRelation) -> None:
            if relation.identifier == "m":
                raise DbtRuntimeError("not allowed")
            super().drop_relation(relation)

    adapter = Stubborn(relation("m", "view"))
    adapter.there["m__dbt_new"] = adapter.builder.built_beside(adapter.there["m"], relation("m", "table"))
    with pytest.raises(DbtRuntimeError):
        adapter.builder.put_in_place()
    adapter.builder.end()
    assert adapter.kinds() == {"m": "view"}


@pytest.mark.parametrize(
    ("there", "kinds"),
    [
        ([("m__dbt_new", "table")], {"m": "table"}),
        ([("m__dbt_new", "table"), ("m", "view")], {"m": "table"}),
        ([("m__dbt_new", "dynamic_table"), ("m", "table")], {"m": "dynamic_table"}),
        ([("m__dbt_new", "table"), ("m", "table")], {"m": "table"}),
        ([("m__dbt_new", "table"), ("m", "external")], {"m": "external"}),
        ([("m", "view")], {"m": "view"}),
    ],
)
def test_what_a_killed_process_has_left(there: list[tuple[str, str]], kinds: dict[str, str]) -> None:
    adapter = FakeAdapter(*(relation(name, kind) for name, kind in there))
    adapter.builder.settle_interrupted(relation("m", "table"))
    assert adapter.kinds() == kinds


@pytest.mark.parametrize(("hours", "left"), [(2, 3), (30, 2)])
def test_tables_on_the_way_are_those_of_a_process(hours: int, left: int) -> None:
    """What others made is theirs; after a day it is nobody's."""
    others = [
        relation("m__dbt_tmp_aaaaaaaa", "table"),
        relation("m2__dbt_tmp_aaaaaaaa", "table"),
        relation("m", "table"),
    ]
    adapter = FakeAdapter(*others, changed=datetime.now(timezone.utc) - timedelta(hours=hours))
    staged = adapter.builder.staging_table(relation("m", "table"), "bbbbbbbb")
    assert staged.identifier == "m__dbt_tmp_bbbbbbbb"
    assert len(adapter.there) == left


def test_long_names_leave_room() -> None:
    long = relation("t" * 199 + "a", "table")
    for name in (
        temporary_view(long, "__dbt_tmp").identifier,
        FakeAdapter().builder.staging_table(long, "b" * 8).identifier,
    ):
        assert name is not None
        assert len(name) == 200
    assert temporary_view(long, "__dbt_tmp") != temporary_view(relation("t" * 200, "table"), "__dbt_tmp")
    assert temporary_view(relation("m", "table"), "__dbt_tmp").render() == "`m__dbt_tmp`"
