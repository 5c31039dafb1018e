"""Dynamic tables as dbt models: what is compared with what is there, and what follows from a difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dbt_server import DbtServer, Project

MODEL = "select kind, count(*) as n, sum(amount) as total from {{ ref('facts') }} group by kind"
START = {"refresh_interval": "5 MINUTE", "refresh_mode": "AUTO"}

pytestmark = pytest.mark.timeout(900)


def config_of(**config: Any) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in {"materialized": "dynamic_table", **config}.items())


class Totals:
    """A project with a table and the dynamic table `totals` over it, built once."""

    def __init__(self, server: DbtServer, schema: str, folder: Path) -> None:
        self.server = server
        self.schema = schema
        self.project = Project.new(folder / "shop", {"dev": server.target(schema)})
        self.project.write(
            "models/facts.sql",
            "{{ config(materialized='table') }} select id, id % 3 as kind, id * 2 as amount from range(10)",
        )
        self.model(**START)
        self.project.succeeds("run")

    def model(self, query: str = MODEL, **config: Any) -> None:
        self.project.write("models/totals.sql", f"{{{{ config({config_of(**config)}) }}}}\n{query}")

    def run(self, *more: str) -> str:
        return self.project.succeeds("--debug", "run", "--select", "totals", *more).output

    def described(self) -> dict[str, str]:
        rows = self.server.rows(f"DESC EXTENDED {self.schema}.totals")
        return {str(row[0]): str(row[1]) for row in rows}

    def history(self) -> list[dict[str, Any]]:
        """Newest first."""
        return [
            row
            for row in self.server.records("SHOW DYNAMIC TABLE REFRESH HISTORY WHERE name = 'totals'")
            if row["schema_name"] == self.schema
        ]


@pytest.fixture
def totals(dbt_server: DbtServer, schema: str, tmp_path: Path) -> Iterator[Totals]:
    made = Totals(dbt_server, schema, tmp_path)
    yield made
    assert dbt_server.verified(f"{schema}.totals") == "EQUAL"
    assert dbt_server.temporary(schema) == []


def test_what_is_the_same_is_only_refreshed(totals: Totals) -> None:
    """Nothing new; the same interval and the same query in other words; then new rows, which are there when it ends."""
    before = totals.described()
    for config, query in (
        (START, MODEL),
        (START | {"refresh_interval": "300 SECOND"}, MODEL.replace(" from ", "\n\n  from  -- why\n")),
        (START | {"refresh_interval": "5 minutes"}, MODEL),
    ):
        totals.model(query, **config)
        said = totals.run()
        assert "Applying ALTER" not in said
        assert "Applying REPLACE" not in said
    assert totals.described()["created_time"] == before["created_time"]
    assert totals.history()[0]["refresh_mode"] == "NO_DATA"
    totals.server.rows(f"INSERT INTO {totals.schema}.facts VALUES (100, 1, 7)")
    totals.run()
    assert totals.history()[0]["refresh_mode"] == "INCREMENTAL"
    assert totals.server.rows(f"SELECT sum(n) FROM {totals.schema}.totals") == [(11,)]


def test_changed_in_place(totals: Totals) -> None:
    totals.server.rows("CREATE VCLUSTER IF NOT EXISTS dbt_other VCLUSTER_TYPE = GENERAL VCLUSTER_SIZE = XSMALL")
    created = totals.described()["created_time"]
    totals.model(**START | {"refresh_interval": "10 MINUTE", "refresh_vc": "dbt_other", "refresh_mode": "FULL"})
    said = totals.run()
    assert "Applying ALTER" in said
    assert "Applying REPLACE" not in said
    described = totals.described()
    found = (described["refresh_interval_second"], described["refresh_vc"], described["refresh_mode"])
    assert found == ("600", "dbt_other", "FULL")
    assert described["created_time"] == created
    totals.model(**START)
    assert "refresh_vc from dbt_other to default" in totals.run()
    assert totals.described()["refresh_vc"] == "default"


def test_another_query_replaces(totals: Totals) -> None:
    totals.model(MODEL.replace("count(*)", "count(*) + 1"), **START)
    said = totals.run()
    assert "Applying REPLACE" in said
    assert totals.server.rows(f"SELECT sum(n) FROM {totals.schema}.totals") == [(13,)]
    assert "Applying REPLACE" not in totals.run(), "the second run finds the new query there"


def test_every_other_component_is_seen(totals: Totals) -> None:
    """One after the other; the last run finds all of them there."""
    wanted: dict[str, Any] = {"refresh_mode": "AUTO"}
    for config in (
        {"target_lag": "10 minutes"}, {"clustered_by": ["kind"]}, {"partition_by": ["kind"], "clustered_by": None},
        {"properties": {"team": "ann"}},
    ):  # fmt: skip
        wanted |= config
        totals.model(**wanted)
        said = totals.run()
        assert "Applying ALTER" in said or "Applying REPLACE" in said, said
    said = totals.run()
    assert "Applying ALTER" not in said
    assert "Applying REPLACE" not in said


def test_continue_and_fail_leave_it(totals: Totals) -> None:
    totals.model(**START | {"refresh_interval": "10 MINUTE", "on_configuration_change": "continue"})
    said = totals.run()
    assert "`on_configuration_change` was set to `continue`" in said
    assert totals.described()["refresh_interval_second"] == "300"
    totals.model(MODEL + " having count(*) > 0", **START | {"on_configuration_change": "fail"})
    ran = totals.project.fails("run", "--select", "totals")
    assert "`on_configuration_change` was set to `fail`" in ran
    assert "having" not in totals.described()["view_original_text"]
    totals.run("--full-refresh")
    assert "having" in totals.described()["view_original_text"], "who asks for it, gets it"


def test_full_refresh_computes_all_rows_in_place(totals: Totals) -> None:
    created = totals.described()["created_time"]
    totals.server.rows(f"CREATE TABLE STREAM {totals.schema}.changes ON TABLE {totals.schema}.totals")
    said = totals.run("--full-refresh")
    assert "Applying REPLACE" in said
    assert totals.history()[0]["refresh_mode"] == "FULL"
    assert totals.described()["created_time"] == created
    assert totals.server.rows(f"SELECT * FROM {totals.schema}.changes") == [], "the stream is not stale"
    totals.server.rows(f"DROP TABLE STREAM {totals.schema}.changes")
    totals.model("select kind, rand() as n from {{ ref('facts') }}", **START)
    assert "rand()" in totals.project.fails("run", "--select", "totals", "--full-refresh")
    assert totals.server.rows(f"SELECT sum(n) FROM {totals.schema}.totals") == [(10,)], "the old rows stay"


def test_other_columns_of_the_same_query_replace(totals: Totals) -> None:
    """A query that takes all columns, and one that takes a column whose type is another now."""
    project, server, schema = totals.project, totals.server, totals.schema
    facts = "{{ config(materialized='table') }} select id, id % 3 as kind, id * 2 as amount from range(10)"
    project.write("models/totals.sql", f"{{{{ config({config_of(**START)}) }}}}\nselect * from {{{{ ref('facts') }}}}")
    project.succeeds("run")
    project.write("models/facts.sql", facts.replace(" from ", ", 'x' as more from "))
    said = project.succeeds("--debug", "run")
    assert "the columns: new more" in said
    assert server.rows(f"SELECT count(more) FROM {schema}.totals") == [(10,)]
    assert "Applying REPLACE" not in totals.run(), "now they are the same"
    server.rows(f"ALTER TABLE {schema}.facts ADD COLUMNS (last INT)")
    totals.model("select * from {{ ref('facts') }}", **START | {"on_configuration_change": "continue"})
    assert "the columns: new last" in totals.run()
    totals.run("--full-refresh")
    assert server.rows(f"SELECT count(last) FROM {schema}.totals") == [(0,)]

    totals.model(**START)
    totals.run()
    project.write("models/facts.sql", facts.replace("id * 2 as amount", "cast(id as decimal(10,2)) as amount"))
    totals.model(**START | {"on_configuration_change": "fail"})
    assert "the columns: total decimal(20,2) instead of bigint" in project.fails("run")
    totals.model(**START)
    totals.run()
    assert server.rows(f"SELECT sum(total) FROM {schema}.totals") == [(Decimal("45.00"),)]


def test_the_same_query_in_other_words_is_refreshed(totals: Totals) -> None:
    """OR REPLACE keeps the rows of a query that means the same; what came since must be there all the same."""
    totals.server.rows(f"INSERT INTO {totals.schema}.facts VALUES (100, 1, 7)")
    totals.model(MODEL.replace("select kind", "select facts.kind").replace("}}", "}} as facts"), **START)
    assert "Applying REPLACE" in totals.run()
    assert totals.server.rows(f"SELECT sum(n) FROM {totals.schema}.totals") == [(11,)]


def test_hooks_run_and_empty_builds_read_nothing(totals: Totals) -> None:
    totals.server.rows(f"CREATE TABLE {totals.schema}.told (word STRING)")
    totals.model(
        **START,
        pre_hook=f"insert into {totals.schema}.told values ('before')",
        post_hook=f"insert into {totals.schema}.told values ('after')",
    )
    totals.run("--empty", "--full-refresh")
    assert sorted(totals.server.rows(f"SELECT word FROM {totals.schema}.told")) == [("after",), ("before",)]
    assert totals.server.rows(f"SELECT count(*) FROM {totals.schema}.totals") == [(0,)]
    # Without an interval and a lag, only dbt refreshes it.
    totals.model(refresh_mode="AUTO")
    totals.run()
    assert totals.described()["refresh_interval_second"] == ""
    assert totals.server.rows(f"SELECT sum(n) FROM {totals.schema}.totals") == [(10,)]


def test_a_sample_of_the_rows(totals: Totals) -> None:
    totals.project.write(
        "models/facts.sql",
        "{{ config(materialized='table', event_time='at') }} select id, id % 3 as kind, id * 2 as amount,"
        " timestamp'2024-01-01' + make_interval(0, 0, 0, cast(id as int)) as at from range(10)",
    )
    totals.project.succeeds("run")
    window = str({"start": "2024-01-03", "end": "2024-01-06"})
    totals.run("--sample", window)
    assert totals.server.rows(f"SELECT sum(n) FROM {totals.schema}.totals") == [(3,)]
    totals.run()
    assert totals.server.rows(f"SELECT sum(n) FROM {totals.schema}.totals") == [(10,)]


def test_becoming_one_and_ceasing_to_be(
    new_project: Callable[..., Project], dbt_server: DbtServer, schema: str
) -> None:
    project = new_project()
    project.write("models/facts.sql", "{{ config(materialized='table') }} select 1 as id")
    others = ("table", "view", "incremental")
    for dynamic in (False, True, False, True):
        for other in others:
            kind = "dynamic_table" if dynamic else other
            text = f"{{{{ config(materialized='{kind}') }}}} select id from {{{{ ref('facts') }}}}"
            project.write(f"models/was_{other}.sql", text)
        project.succeeds("run", "--full-refresh")
        found = {row["table_name"]: row for row in dbt_server.records(f"SHOW TABLES IN {schema}")}
        assert {found[f"was_{other}"]["is_dynamic"] for other in others} == {dynamic}
        assert found["was_view"]["is_view"] == (not dynamic)
        assert len(found) == 4
    for other in others:
        assert dbt_server.verified(f"{schema}.was_{other}") == "EQUAL"


def test_a_config_that_cannot_be(totals: Totals) -> None:
    for key, value in (
        ("refresh_interval", "often"), ("refresh_mode", "SOMETIMES"), ("refresh_vc", "nowhere"), ("target_lag", "soon"),
    ):  # fmt: skip
        totals.model(**{key: value})
        ran = totals.project.fails("run", "--select", "totals")
        assert (value if key == "refresh_vc" else key) in ran
        assert "Traceback" not in ran
