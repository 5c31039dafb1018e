"""The dbt adapter without a lake: table streams in models."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from dbt_common.exceptions import DbtRuntimeError
from jinja2 import Template

from dbt.adapters.headrace.incremental_code import incremental_code, is_compiled_alike
from dbt.adapters.headrace.streams import FullLoad, Place, Stream, StreamReader, named_sources, settled
from headrace.errors import NotFound

SOURCES = {
    "source.p.shop.s": {"source_name": "shop", "name": "s", "database": "main", "schema": "raw", "identifier": "S"},
    "source.p.shop.t": {"source_name": "shop", "name": "t", "database": "main", "schema": "raw", "identifier": "T"},
    "source.p.shop.u": {"source_name": "shop", "name": "u", "database": "main", "schema": "raw", "identifier": "u"},
    "source.p.shop.s2": {"source_name": "shop", "name": "s2", "database": "main", "schema": "raw", "identifier": "S2"},
}
MADE = datetime(2026, 11, 17, 9, tzinfo=timezone.utc)
SHOWN = {
    "workspace_name": "main", "schema_name": "raw", "name": "s", "table_name": "main.raw.t", "offset": 3,
    "created_time": MADE,
}  # fmt: skip
STREAM = Stream("main.raw.s", "main.raw.t", 3, "2026-11-17T09:00:00+00:00")
HERE = Place("main", "dev", "main")


class FakeLake:
    """A stream `main.raw.s` and another, `s2`, on `main.raw.t`, of which this is the newest version."""

    def __init__(self, read: bool = False, version: int = 7, **shown: Any) -> None:
        self.read, self.version, self.shown = read, version, SHOWN | shown

    def __call__(self, text: str) -> list[dict[str, Any]]:
        if text.startswith("SHOW TABLE STREAMS READ BY"):
            return [self.shown] if self.read and text.endswith("a_view_of_the_stream") else []
        if text.startswith("DESC HISTORY"):
            return [{"version": self.version}]
        if text.startswith("DESC TABLE"):
            if "gone" in text:
                raise NotFound("There is no such table.")
            return []
        assert text.upper().startswith("SHOW TABLE STREAMS IN `MAIN`.`RAW` LIKE 'S")
        return [self.shown, self.shown | {"name": "s2"}]


def full_load(
    sql: str, lake: FakeLake | None = None, later: str | None = "select * from main.raw.s", **config: Any
) -> FullLoad:
    model = {
        "config": config, "database": "main", "schema": "dev", "alias": "M",
        "depends_on": {"nodes": ["source.p.shop.s"]},
    }  # fmt: skip
    sources = {key: source for key, source in SOURCES.items() if str(source["identifier"]).startswith("S")}
    named = named_sources(model, (sql, later), sources, HERE)
    return StreamReader(lake or FakeLake(), HERE).full_load(model, sql, later, named)


def after(load: FullLoad, table: str = "m", lake: FakeLake | None = None) -> list[str]:
    return StreamReader(lake or FakeLake(), HERE).after(load, table)


def test_the_sources_that_a_model_names() -> None:
    model: dict[str, Any] = {"depends_on": {"nodes": ["source.p.shop.u"]}}

    def names(now: str, later: str | None) -> list[str]:
        return [each["name"] for each in named_sources(model, (now, later), SOURCES, HERE)]

    assert names("select * from raw.T", "select * from `main`.`raw`.`s` -- main.raw.u") == ["s", "t"]
    assert names("select 1", None) == ["u"], "what it says, where nobody can tell"
    model["raw_code"] = "{% if is_incremental() and execute %} … {% endif %}"
    assert names("select 1", "select 1") == ["u"], "or where it was guessed"


def rendered(raw_code: str, **more: Any) -> str | None:
    context: dict[str, Any] = {
        "is_incremental": lambda: False,
        "execute": True,
        "source": lambda schema, name: f"main.{schema}.{name}",
        "target": {"name": "dev"},
    }

    def forbidden(text: str) -> None:
        raise AssertionError(f"nothing may run: {text}")

    context |= {"run_query": forbidden, "render": lambda text: Template(text).render(context)}
    before = dict(context)
    found = incremental_code(context, {"raw_code": raw_code} | more)
    assert context == before
    return None if found is None else " ".join(found.split())


def test_a_model_as_later_runs_read_it() -> None:
    """In the branches of this target; what a query would have answered is not asked for."""
    assert rendered(
        "{% if is_incremental() %} {% if target.name == 'prod' %} {{ source('raw', 's_prod') }} {% else %}"
        " {{ source('raw', 's_' ~ target.name) }} {% endif %} {% else %} {{ source('raw', 't') }} {% endif %}"
    ) == "main.raw.s_dev"  # fmt: skip
    asks = "{% set top = run_query('select max(id)').columns[0].values()[0] %} {{ source('raw', 's') }}"
    more = " where id > {{ top }} {% if top > 3 %} and false {% endif %} {% for id in top %} {{ id }} {% endfor %}"
    assert rendered(asks + more) == "main.raw.s where id > null"
    assert rendered("{{ source('raw', 1 / 0) }}") is None
    ctes = [{"id": f"model.p.{name}", "sql": f"__dbt__cte__{name} as (from {of})"} for name, of in
            (("a", "main.raw.s"), ("b", "__dbt__cte__a"), ("c", "x"))]  # fmt: skip
    assert rendered("from __dbt__cte__b", extra_ctes=ctes) == (
        "from __dbt__cte__b __dbt__cte__b as (from __dbt__cte__a) __dbt__cte__a as (from main.raw.s)"
    )


@pytest.mark.parametrize(
    ("raw_code", "alike"),
    [
        ("select 1", True),
        ("select {{ source('raw', 's') }}", True),
        ("select 1 {% if is_incremental() %} where false {% endif %}", False),
        ("select 1 {% if execute and load_relation(this) %} where false {% endif %}", False),
        ("select 1 {{ only_later() }}", False),
    ],
)
def test_a_query_that_is_the_same_for_the_first_load(raw_code: str, alike: bool) -> None:
    context: dict[str, Any] = {"source": lambda schema, name: f"main.{schema}.{name}"}
    context["only_later"] = lambda: "where false" if context["is_incremental"]() else ""
    context["render"] = lambda text: Template(text).render(context)
    assert is_compiled_alike(context, {"raw_code": raw_code, "language": "sql"}) is alike
    assert not is_compiled_alike(context, {"raw_code": raw_code, "language": "python"})


def test_a_stream_that_the_runs_do_not_read_stays_where_it_is() -> None:
    """Whatever the model says that it depends on: another target may read it."""
    load = full_load("select * from main.raw.t", later="select * from main.raw.other")
    assert (load.sql, load.properties, after(load)) == ("select * from main.raw.t", {}, [])


def test_two_streams_of_one_table() -> None:
    load = full_load("select * from main.raw.t", later="select * from main.raw.s join main.raw.s2 using (id)")
    assert load.sql == "select * from main.raw.t VERSION AS OF 7"
    assert [words[:50] for words in after(load)[:-1]] == [
        "ALTER TABLE STREAM main.raw.s SET OFFSET VERSION AS OF 7"[:50],
        "ALTER TABLE STREAM main.raw.s2 SET OFFSET VERSION AS OF 7"[:50],
    ]


def test_a_stream_that_the_runs_read_through_a_view() -> None:
    load = full_load("select * from main.raw.t", FakeLake(read=True), later="select * from a_view_of_the_stream")
    assert after(load)[0] == "ALTER TABLE STREAM main.raw.s SET OFFSET VERSION AS OF 7"


def test_where_nobody_can_tell_the_model_is_taken_at_its_word() -> None:
    assert after(full_load("select * from main.raw.t", later=None))[0].startswith("ALTER TABLE STREAM main.raw.s ")


@pytest.mark.parametrize("table", ["`main`.`raw`.`t`", "main.RAW.`T`", "raw.t"])
def test_a_full_load_beside_a_stream(table: str) -> None:
    load = full_load(f"-- main.raw.s, main.raw.t\nselect 'main.raw.t' from {table} as x join main.raw.t2 using (id)")
    assert f"from {table} VERSION AS OF 7 as x join main.raw.t2 using" in load.sql
    assert load.sql.count("VERSION AS OF") == 1
    assert load.properties == {"dbt_stream.main.raw.s": "made 2026-11-17T09:00:00+00:00; for main.dev.m; set offset 7"}
    assert after(load, "`main`.`dev`.`m`") == [
        "ALTER TABLE STREAM main.raw.s SET OFFSET VERSION AS OF 7",
        "ALTER TABLE `main`.`dev`.`m` SET PROPERTIES "
        "('dbt_stream.main.raw.s'='made 2026-11-17T09:00:00+00:00; for main.dev.m')",
    ]


def test_a_stream_that_goes_on_while_a_table_is_loaded() -> None:
    load = full_load("select * from main.raw.t")
    with pytest.raises(DbtRuntimeError, match="stands at version 9 already"):
        after(load, lake=FakeLake(offset=9))


@pytest.mark.parametrize("other", ["main.dev.other", "another table"])
def test_a_stream_of_another_table(other: str) -> None:
    with pytest.raises(DbtRuntimeError, match=f"is read into {other}, and loading main.dev.M would set it"):
        full_load("select * from main.raw.t", FakeLake(last_read_into=other))
    note = {"dbt_stream.main.raw.s": "made 2026-11-17T09:00:00+00:00; for main.dev.m"}
    with pytest.raises(DbtRuntimeError, match=f"(?s)loading main.dev.M would take.*{other} would miss rows"):
        full_load("select * from main.raw.s", FakeLake(last_read_into=other))
    with pytest.raises(DbtRuntimeError, match=f"(?s){other} has: .*Each model needs a stream of its own"):
        settled([replace(STREAM, read_into=other)], note, "main.dev.m")


@pytest.mark.parametrize("own", ["main.dev.M", "main.dev.m__dbt_new", "main.dev.gone"])
def test_a_stream_of_the_table_itself(own: str) -> None:
    load = full_load("select * from main.raw.t", FakeLake(last_read_into=own))
    assert len(load.beside) == 1
    if "gone" not in own:
        note = {"dbt_stream.main.raw.s": "made 2026-11-17T09:00:00+00:00; for main.dev.m"}
        assert settled([replace(STREAM, read_into=own)], note, "main.dev.m") == []


@pytest.mark.parametrize("sql", ["select * from `main`.`raw`.`S`", "select * from a_view_of_the_stream"])
def test_a_full_load_that_reads_the_stream(sql: str) -> None:
    load = full_load(sql, FakeLake(read="view" in sql))
    assert (load.sql, after(load)) == (sql, [])
    assert load.properties == {"dbt_stream.main.raw.s": "made 2026-11-17T09:00:00+00:00; for main.dev.m"}


@pytest.mark.parametrize(
    "sql",
    [
        "select * from main.dev.a_view_of_the_table",
        "select * from main.raw.t VERSION AS OF 2",
        "with t as (select 1 as id) select * from t",
        "select 'main.raw.t' /* main.raw.t */ from main.raw.t2",
    ],
)
def test_a_full_load_of_which_nobody_can_tell(sql: str) -> None:
    with pytest.raises(DbtRuntimeError, match=r"main\.raw\.s.*main\.raw\.t.*make it ephemeral"):
        full_load(sql)


def test_batches_cannot_read_a_stream() -> None:
    with pytest.raises(DbtRuntimeError, match="built in batches"):
        full_load("select * from main.raw.t", incremental_strategy="microbatch")


@pytest.mark.parametrize(
    ("offset", "note", "expected"),
    [
        (3, "made 2026-11-17T09:00:00+00:00; for m", []),
        (3, "in step", []),
        (3, "made 2026-11-17T09:00:00+00:00; set offset 7", ["SET OFFSET VERSION AS OF 7", "SET PROPERTIES"]),
        (7, "made 2026-11-17T09:00:00+00:00; set offset 7", ["SET OFFSET VERSION AS OF 7", "SET PROPERTIES"]),
    ],
)
def test_what_a_run_does_first(offset: int, note: str, expected: list[str]) -> None:
    found = settled([replace(STREAM, offset=offset)], {"dbt_stream.main.raw.s": note}, "m")
    assert len(found) == len(expected)
    assert all(words in statement for words, statement in zip(expected, found, strict=True))


@pytest.mark.parametrize(
    ("note", "words"),
    [
        ({}, "without it"),
        ({"dbt_stream.main.raw.s": "made 2025-01-01T00:00:00"}, "made anew"),
        ({"dbt_stream.main.raw.s": "made 2026-11-17T09:00:00+00:00; for main.prod.m"}, "a copy of main.prod.m"),
    ],
)
def test_a_stream_that_the_table_is_not_in_step_with(note: dict[str, str], words: str) -> None:
    with pytest.raises(DbtRuntimeError, match=f"(?s){words}.*--full-refresh.*'dbt_stream.main.raw.s'='in step'"):
        settled([STREAM], note, "m")
