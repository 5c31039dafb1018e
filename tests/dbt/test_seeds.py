"""Values through seeds, and what else a project does beside its models: Python, grants, docs, freshness."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal

import pytest

from dbt_server import PASSWORD, DbtServer, Project

NewProject = Callable[..., Project]

pytestmark = pytest.mark.timeout(900)


def test_values_arrive_as_they_are(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project(seeds={"+quote_columns": True})
    project.write(
        "seeds/values.csv",
        "id,name,big,price,flag,day,at,note\n"
        '1,O\'Brien,9007199254740993,1.10,true,2024-02-29,2024-02-29 12:30:00,"a, ""b"""\n'
        "2,,,,,,,back\\slash\n"
        '3,naïve – ☃,-9007199254740993,-0.01,false,0001-01-01,1969-12-31 23:59:59,"two\nlines"\n'
        '4,"",0,0.00,true,,,""\n',
    )
    project.write(
        "seeds/seeds.yml",
        {"seeds": [{"name": "values", "config": {"column_types": {"price": "decimal(10,2)", "big": "bigint"}}}]},
    )
    project.succeeds("seed")
    rows = dbt_server.rows(f"SELECT id, name, big, price, flag, note FROM {schema}.values ORDER BY id")
    assert rows == [
        (1, "O'Brien", 2**53 + 1, Decimal("1.10"), True, 'a, "b"'),
        (2, None, None, None, None, "back\\slash"),
        (3, "naïve – ☃", -(2**53) - 1, Decimal("-0.01"), False, "two\nlines"),
        (4, "", 0, Decimal("0.00"), True, ""),
    ]
    at = dbt_server.rows(f"SELECT CAST(at AS STRING) FROM {schema}.values ORDER BY id")
    assert at == [("2024-02-29 12:30:00",), (None,), ("1969-12-31 23:59:59",), (None,)]


def test_big_integers_without_a_type(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    project.write("seeds/numbers.csv", "n\n9007199254740993\n-9007199254740993\n")
    project.succeeds("seed")
    assert sorted(dbt_server.rows(f"SELECT CAST(n AS BIGINT) FROM {schema}.numbers")) == [
        (-(2**53) - 1,),
        (2**53 + 1,),
    ]


def test_texts_of_digits_whatever_the_case_of_their_column(
    new_project: NewProject, dbt_server: DbtServer, schema: str
) -> None:
    project = new_project()
    project.write("seeds/places.csv", "ZIP,n\n007,1\n,2\n010,3\n")
    project.write("seeds/seeds.yml", {"seeds": [{"name": "places", "config": {"column_types": {"zip": "string"}}}]})
    project.succeeds("seed")
    assert dbt_server.rows(f"SELECT zip FROM {schema}.places ORDER BY n") == [("007",), (None,), ("010",)]


def test_numbers_of_all_sizes(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    texts = ["1e25", "1e-20", "1.5", "6.62607015e-34", "1e308", "123456789012345678901234567890.5"]
    lines = [f"{number},{number},{place}" for place, number in enumerate(texts[:3])]
    project.write("seeds/nums.csv", "\n".join(["x,exact,id", *lines, ",,3"]) + "\n")
    project.write(
        "seeds/wide.csv", "\n".join(["x,id", *(f"{text},{place}" for place, text in enumerate(texts))]) + "\n"
    )
    project.write("seeds/whole.csv", "x,n\n1,1e40\n2,3\n")
    types = {"exact": "decimal(38,12)"}
    project.write("seeds/seeds.yml", {"seeds": [{"name": "nums", "config": {"column_types": types}}]})
    project.succeeds("seed")
    found = dbt_server.rows(f"SELECT x, exact FROM {schema}.nums ORDER BY id")
    assert [x for x, _ in found] == [1e25, 1e-20, 1.5, None]
    assert [exact for _, exact in found] == [Decimal("1e25"), Decimal(0), Decimal("1.5"), None]
    assert dbt_server.rows(f"SELECT x FROM {schema}.wide ORDER BY id") == [(float(text),) for text in texts]
    assert dbt_server.rows(f"SELECT n FROM {schema}.whole ORDER BY x") == [(1e40,), (3.0,)]


def test_cells_that_hold_nothing(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """An empty text is one where texts are; elsewhere it is NULL, as is a line with nothing in it."""
    project = new_project()
    project.write("seeds/empties.csv", 'id,n,word\n1,"",""\n2,,\n3,7,x\n')
    project.write("seeds/lines.csv", 'id,word\n1,""\n\n2,b\n')
    types = {"N": "int", "word": "varchar(5)", "id": None}
    project.write("seeds/seeds.yml", {"seeds": [{"name": "empties", "config": {"column_types": types}}]})
    project.succeeds("seed")
    found = dbt_server.rows(f"SELECT n, word FROM {schema}.empties ORDER BY id")
    assert found == [(None, ""), (None, None), (7, "x")]
    found = dbt_server.rows(f"SELECT id, word FROM {schema}.lines ORDER BY id NULLS LAST")
    assert found == [(1, ""), (2, "b"), (None, None)]


def test_seeding_again_replaces_the_rows(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    project.write("seeds/words.csv", "id,word\n1,a\n2,b\n")
    project.succeeds("seed")
    project.write("seeds/words.csv", "id,word\n1,c\n")
    project.succeeds("seed")
    assert dbt_server.rows(f"SELECT id, word FROM {schema}.words") == [(1, "c")]
    project.write("seeds/words.csv", "id,word,more\n1,c,x\n")
    project.succeeds("seed", "--full-refresh")
    assert dbt_server.rows(f"SELECT more FROM {schema}.words") == [("x",)]


def test_a_seed_of_several_batches(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project({"query_tag": schema})
    project.write("seeds/many.csv", "id,word\n" + "".join(f"{n},w{n:x>80}\n" for n in range(12_345)))
    for _ in range(2):
        project.succeeds("seed")
        found = dbt_server.rows(f"SELECT count(*), count(DISTINCT word), sum(id) FROM {schema}.many")
        assert found == [(12_345, 12_345, sum(range(12_345)))]
    staged = f"SHOW JOBS WHERE query_tag = '{schema}' AND job_text LIKE '%insert into%many__dbt_tmp%'"
    assert len(dbt_server.records(staged)) == 4, "of three batches, the first makes the table"
    assert dbt_server.temporary(schema) == []


# ---------------------------------------------------------------------- Python models


def test_a_python_model_gets_spark(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    project.write("models/facts.sql", "{{ config(materialized='table') }} select id, id % 3 as kind from range(10)")
    project.write(
        "models/kinds.py",
        "import pyspark.sql.functions as F\n\n\n"
        "def model(dbt, session):\n"
        "    dbt.config(materialized='table', who='ann')\n"
        "    facts = dbt.ref('facts')\n"
        "    assert type(facts).__module__.startswith('pyspark.sql'), type(facts)\n"
        "    kinds = facts.groupBy('kind').agg(F.count('*').alias('n'))\n"
        "    return kinds.withColumn('who', F.lit(dbt.config.get('who')))\n",
    )
    project.write("models/after.sql", "select * from {{ ref('kinds') }} where n > 3")
    project.succeeds("run")
    assert sorted(dbt_server.rows(f"SELECT kind, n, who FROM {schema}.kinds")) == [
        (0, 4, "ann"),
        (1, 3, "ann"),
        (2, 3, "ann"),
    ]
    assert dbt_server.rows(f"SELECT kind FROM {schema}.after") == [(0,)]
    assert dbt_server.temporary(schema) == []


def test_an_error_in_a_python_model(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    project.write("models/wrong.py", "def model(dbt, session):\n    return session.table('nowhere.nothing')\n")
    ran = project.fails("run")
    assert "wrong" in ran
    assert "nowhere" in ran
    assert dbt_server.temporary(schema) == []


# ---------------------------------------------------------------------- grants


def test_grants_follow_the_model(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    for user in ("reader_one", "reader_two"):
        dbt_server.rows(f"CREATE USER IF NOT EXISTS {user} WITH PASSWORD '{PASSWORD}'")
    project = new_project()

    def granted() -> set[tuple[str, str]]:
        found = [*dbt_server.records("SHOW GRANTS TO reader_one"), *dbt_server.records("SHOW GRANTS TO reader_two")]
        return {(row["user_name"], row["object_name"].split(".")[-1]) for row in found if schema in row["object_name"]}

    for user in ("reader_one", "reader_two"):
        for kind in ("table", "view", "dynamic_table"):
            source = "select 1 as id" if kind != "dynamic_table" else "select * from {{ ref('a_table') }}"
            grants = json.dumps({"select": [user]})
            project.write(f"models/a_{kind}.sql", f"{{{{ config(materialized='{kind}', grants={grants}) }}}} {source}")
        project.succeeds("run")
        assert granted() == {(user, "a_table"), (user, "a_view"), (user, "a_dynamic_table")}
    assert dbt_server.verified(f"{schema}.a_dynamic_table") == "EQUAL"


# ---------------------------------------------------------------------- docs, lineage and freshness


@pytest.fixture
def documented(new_project: NewProject, dbt_server: DbtServer, schema: str) -> Project:
    dbt_server.rows(f"CREATE SCHEMA {schema}")
    dbt_server.rows(f"CREATE TABLE {schema}.raw (id INT, at TIMESTAMP) TBLPROPERTIES ('change_tracking'='true')")
    dbt_server.rows(f"CREATE TABLE STREAM {schema}.raw_stream ON TABLE {schema}.raw")
    project = new_project()
    tables = [{"name": "raw", "description": "As it arrives"}, {"name": "raw_stream"}]
    project.write("models/sources.yml", {"sources": [{"name": "raw", "schema": schema, "tables": tables}]})
    project.write(
        "models/taken.sql",
        "{{ config(materialized='incremental') }} select * from {{ source('raw', 'raw_stream') }}",
    )
    project.write("models/seen.sql", "select * from {{ source('raw', 'raw_stream') }}")
    project.write(
        "models/counted.sql",
        "{{ config(materialized='dynamic_table') }} select count(*) as n from {{ ref('taken') }}",
    )
    return project


def test_docs_know_streams_and_dynamic_tables(documented: Project, dbt_server: DbtServer, schema: str) -> None:
    documented.succeeds("run")
    documented.succeeds("docs", "generate")
    catalog = documented.artifact("catalog.json")
    assert not catalog["errors"]
    types = {name: node["metadata"]["type"].lower() for name, node in catalog["nodes"].items()}
    assert types == {
        "model.shop.taken": "table", "model.shop.counted": "dynamic_table", "model.shop.seen": "view",
    }, "columns of a stream make no stream"  # fmt: skip
    assert set(catalog["sources"]) == {"source.shop.raw.raw", "source.shop.raw.raw_stream"}
    assert "stream" in catalog["sources"]["source.shop.raw.raw_stream"]["metadata"]["type"].lower()
    assert {"id", "at"} <= set(catalog["sources"]["source.shop.raw.raw_stream"]["columns"])
    parents = documented.artifact("manifest.json")["parent_map"]
    assert parents["model.shop.taken"] == ["source.shop.raw.raw_stream"]
    assert parents["model.shop.counted"] == ["model.shop.taken"]
    assert dbt_server.verified(f"{schema}.counted") == "EQUAL"


def test_docs_leave_out_what_cannot_be_read(documented: Project, dbt_server: DbtServer, schema: str) -> None:
    documented.write("models/broken.sql", f"select n from {schema}.base")
    dbt_server.rows(f"CREATE TABLE {schema}.base (n INT)")
    documented.succeeds("run")
    dbt_server.rows(f"CREATE OR REPLACE TABLE {schema}.base (m INT)")
    ran = documented.succeeds("docs", "generate")
    assert "broken` is left out of the catalog" in ran
    catalog = documented.artifact("catalog.json")
    assert not catalog["errors"]
    assert set(catalog["nodes"]) == {"model.shop.taken", "model.shop.seen", "model.shop.counted"}
    assert dbt_server.verified(f"{schema}.counted") == "EQUAL"


def test_freshness_comes_from_the_last_commit(documented: Project, dbt_server: DbtServer, schema: str) -> None:
    fresh = {"freshness": {"warn_after": {"count": 1, "period": "day"}}}
    tables = [
        {"name": "raw", "config": fresh},
        {"name": "raw_stream", "config": fresh},
        {"name": "nowhere", "config": fresh},
        {
            "name": "by_column",
            "identifier": "raw",
            "config": {"loaded_at_field": "at", "freshness": {"error_after": {"count": 1, "period": "day"}}},
        },
    ]
    documented.write("models/sources.yml", {"sources": [{"name": "raw", "schema": schema, "tables": tables}]})
    dbt_server.rows(f"INSERT INTO {schema}.raw VALUES (1, timestamp'2020-01-01 00:00:00')")
    ran = documented.fails("source", "freshness")
    found = {each["unique_id"]: each for each in documented.artifact("sources.json")["results"]}
    for name in ("raw", "raw_stream"):
        assert found[f"source.shop.raw.{name}"]["status"] == "pass"
        assert datetime.fromisoformat(found[f"source.shop.raw.{name}"]["max_loaded_at"]).year > 2020
    assert found["source.shop.raw.by_column"]["status"] == "error"
    assert "Error in source nowhere" in ran, "and it holds up no other"
    alone = documented.fails("source", "freshness", "--select", "source:raw.nowhere")
    assert "Error in source nowhere" in alone, alone.output
