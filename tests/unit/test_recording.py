"""Recorded DataFrames: what a client writes down, its form in JSON, and what a server refuses to read."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BadSetting, NotAllowed, UserError
from headrace.recording import allowed
from headrace.recording import functions as F
from headrace.recording.columns import Column, Window
from headrace.recording.frames import DataFrame
from headrace.recording.plans import from_json, to_json
from headrace.recording.rows import Row, pandas_of, rows_of
from headrace.recording.session import RemoteFrames
from headrace.recording.tree import Call, Node, Table, in_order, texts_in
from headrace.recording.types import type_text
from headrace.recording.values import recorded
from headrace.session import Session


class Lake:
    """A server's lake as far as writing down needs it."""

    url = "http://lake.example"


@pytest.fixture
def session() -> RemoteFrames:
    return RemoteFrames(Lake())  # type: ignore[arg-type]


def round_trip(node: Node) -> Node:
    text = json.dumps(to_json(node), allow_nan=False)
    found = from_json(json.loads(text))
    assert json.dumps(to_json(found)) == text
    return found


def sent(found: Any) -> list[dict[str, Any]]:
    node = found._recorded_node()
    round_trip(node)
    nodes: list[dict[str, Any]] = to_json(node)["nodes"]
    return nodes


def test_a_plan_is_a_list_of_calls(session: RemoteFrames) -> None:
    rows = session.table("orders").filter(F.col("amount") > 100).select("id", F.upper("name").alias("name"))
    assert sent(rows) == [
        {"op": "table", "name": "orders", "consume": True},
        {"op": "function", "name": "col", "arguments": ["amount"]},
        {"op": "call", "on": 1, "method": ">", "arguments": [100]},
        {"op": "call", "on": 0, "method": "filter", "arguments": [{"node": 2}]},
        {"op": "function", "name": "upper", "arguments": ["name"]},
        {"op": "call", "on": 4, "method": "alias", "arguments": ["name"]},
        {"op": "call", "on": 3, "method": "select", "arguments": ["id", {"node": 5}]},
    ]


def test_methods_in_both_spellings(session: RemoteFrames) -> None:
    rows = session.table("t")
    for one, other in (
        (rows.with_column("x", F.lit(1)), rows.withColumn("x", F.lit(1))),
        (rows.group_by("a").agg(F.sum("b")), rows.groupBy("a").agg(F.sum("b"))),
        (rows.union_all(rows), rows.unionAll(rows)),
        (rows.to_df("a"), rows.toDF("a")),
        (rows.rename("a", "b"), rows.withColumnsRenamed({"a": "b"})),
        (rows.na.fill(0), rows.fillna(0)),
        (rows.filter(F.countDistinct("a") > 1), rows.filter(F.countDistinct("a") > 1)),
    ):
        assert sent(one) == sent(other)
    assert rows.toPandas.__name__ == rows.to_pandas.__name__
    with pytest.raises(BadSetting):
        rows.rename("a")


def test_what_is_used_twice_is_sent_once(session: RemoteFrames) -> None:
    rows = session.table("t")
    for _ in range(60):
        rows = rows.union(rows)
    assert len(sent(rows)) == 61
    left = session.table("l")
    joined = left.join(session.table("r"), left["id"] == F.col("key"))
    nodes = sent(joined)
    assert sum(node["op"] == "table" for node in nodes) == 2
    assert {"op": "column_of", "of": 0, "item": "id"} in nodes


def test_a_plan_may_be_deeper_than_the_stack(session: RemoteFrames) -> None:
    rows = session.table("t")
    for number in range(5000):
        rows = rows.filter(F.col("x") > number)
    assert len(in_order(round_trip(rows._recorded_node()))) == 15001
    for number in range(5000):
        rows = rows.filter(F.col("x") > number)
    with pytest.raises(NotAllowed, match="calls"):
        to_json(rows._recorded_node())


def test_nodes_do_not_change(session: RemoteFrames) -> None:
    node = session.table("t")._recorded_node()
    with pytest.raises(AttributeError):
        node.name = "u"  # type: ignore[attr-defined]


def test_operators() -> None:
    x, y = F.col("x"), F.col("y")
    for found, shown in (
        (x + 1, "(x + 1)"),
        (1 + x, "(x + 1)"),
        (1 - x, "(1 - x)"),
        (2 / x, "(2 / x)"),
        (2**x, "(2 ** x)"),
        (-x, "x.negative()"),
        (~(x == y), "(x == y).~()"),
        ((x > 1) & (y < 2) | (x != y), "(((x > 1) & (y < 2)) | (x != y))"),
        (x["f"], "x.[]('f')"),
        (x.field, "x.[]('field')"),
        (x[1:3], "x.substr(1, 3)"),
        (x.isin([1, 2]), "x.isin([1, 2])"),
        (F.when(x > 1, "a").otherwise("b"), "when((x > 1), 'a').otherwise('b')"),
    ):
        assert repr(found) == f"Column<{shown}>"
        round_trip(found._recorded_node())


def test_what_python_would_do_behind_ones_back() -> None:
    with pytest.raises(NotAllowed, match="neither true nor false"):
        bool(F.col("x") > 1 and F.col("y"))
    with pytest.raises(NotAllowed, match="contains"):
        _ = 1 in F.col("x")
    with pytest.raises(TypeError):
        iter(F.col("x"))


def test_windows() -> None:
    window = Window.partition_by("a").orderBy(F.desc("b")).rows_between(Window.unboundedPreceding, Window.currentRow)
    nodes = sent(F.row_number().over(window))
    assert [node.get("method") for node in nodes if node["op"] in ("window", "call")] == [
        "partitionBy", "orderBy", "rowsBetween", "over",
    ]  # fmt: skip


def test_lambdas_inside_lambdas() -> None:
    found = F.transform("rows", lambda row: F.aggregate("n", F.lit(0), lambda so_far, x: so_far + x * row["k"]))
    nodes = sent(found)
    assert [len(node["parameters"]) for node in nodes if node["op"] == "lambda"] == [2, 1]
    with pytest.raises(NotAllowed, match="parameters"):
        F.transform("a", lambda: F.lit(1))
    with pytest.raises(NotAllowed, match="must give a column"):
        F.transform("a", lambda x: 1)


def test_values_come_back_as_they_were() -> None:
    values = (
        None, True, 1, 2**70, 1.5, "text", [1, [2]], (1, "a"), {"a": 1, 2: [3]}, Decimal("1.50"), date(2026, 1, 2),
        datetime(2026, 1, 2, 3, 4, 5, 6, timezone.utc), timedelta(days=-1, seconds=5), b"\x00\xff",
        Row(a=1, b=Row(c=2)),
    )  # fmt: skip
    node = round_trip(F.function("array")(*values)._recorded_node())
    assert node.arguments == values  # type: ignore[attr-defined]
    (found,) = round_trip(F.lit(float("nan"))._recorded_node()).arguments  # type: ignore[attr-defined]
    assert found != found
    assert recorded({1}) == [1]


def test_a_time_without_a_zone_is_this_machines() -> None:
    moment = datetime(2026, 7, 1, 12)
    assert recorded(moment) == moment.astimezone()


def test_what_does_not_travel_is_refused(session: RemoteFrames) -> None:
    rows = session.table("t")
    for refused in (
        lambda: rows.filter(object()),
        lambda: rows.foreach(print),
        lambda: rows.rdd,
        lambda: rows.mapInPandas(print, "a INT"),
        lambda: rows.group_by("a").applyInPandas(print, "a INT"),
        lambda: rows.write.parquet("/tmp/x"),
        lambda: rows.createGlobalTempView("v"),
        lambda: F.udf,
        lambda: F.reflect,
        lambda: F.call_function,
    ):
        with pytest.raises(NotAllowed):
            refused()
    other = RemoteFrames(Lake()).table("t")  # type: ignore[arg-type]
    with pytest.raises(NotAllowed, match="different sessions"):
        rows.union(other)


def test_columns_of_pyspark_are_refused_with_the_way_out(session: RemoteFrames) -> None:
    from pyspark.sql.classic.column import Column as SparkColumn

    with pytest.raises(NotAllowed, match="made by PySpark") as refused:
        session.table("t").filter(SparkColumn(None))
    assert "from headrace import functions as F" in str(refused.value)


def test_types_of_pyspark_travel_as_sql() -> None:
    from pyspark.sql import types as T

    wanted = T.StructType(
        [
            T.StructField("a b", T.ArrayType(T.IntegerType()), False),
            T.StructField("m", T.MapType(T.StringType(), T.DecimalType(10, 2))),
            T.StructField("n", T.NullType()),
        ]
    )
    text = "struct<`a b`: array<integer> NOT NULL, `m`: map<string, decimal(10,2)>, `n`: void>"
    assert recorded(wanted).text == text
    assert {"type": text} in sent(F.from_json("x", wanted))[-1]["arguments"]
    with pytest.raises(NotAllowed):
        type_text({"type": "udt", "pyClass": "os.system"})


def test_rows_of_this_program(session: RemoteFrames) -> None:
    nodes = sent(session.create_dataframe([(1, "a"), {"id": 2}, Row(id=3)], ["id", "name"]))
    assert nodes == [
        {
            "op": "local_rows",
            "rows": [{"tuple": [1, "a"]}, {"dict": [["id", 2]]}, {"row": [["id"], [3]]}],
            "schema": ["id", "name"],
        }
    ]
    table = pa.table({"id": [1, 2]})
    for data in (table, pandas.DataFrame({"id": [1, 2]})):
        (node,) = sent(session.create_dataframe(data, "id INT"))
        assert (node["op"], node["pandas"]) == ("local_table", data is not table)
    with pytest.raises(UserError, match="8 MiB"):
        session.create_dataframe(pa.table({"x": ["x" * 1000] * 10_000}))
    with pytest.raises(UserError, match="int"):
        session.create_dataframe(1)


def test_rows_as_pyspark_gives_them() -> None:
    kind = pa.struct([("k", pa.int32()), ("at", pa.timestamp("us", "Asia/Tokyo"))])
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    table = pa.table(
        {
            "id": [1, None],
            "at": pa.array([moment, None], pa.timestamp("us", "Asia/Tokyo")),
            "s": pa.array([{"k": 1, "at": moment}, None], kind),
            "m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "l": pa.array([[Decimal("1.5")], None], pa.list_(pa.decimal128(3, 1))),
        }
    )
    first, second = rows_of(table)
    assert first == (
        1, datetime(2026, 1, 1, 9), Row(k=1, at=datetime(2026, 1, 1, 9)), {"a": 1}, [Decimal("1.5")],
    )  # fmt: skip
    assert first.s.k == 1
    assert first["m"] == {"a": 1}
    assert first.asDict(True)["s"]["k"] == 1
    assert repr(Row(a=1, b="x")) == "Row(a=1, b='x')"
    assert second == (None,) * 5
    with pytest.raises(AttributeError, match="it has id"):
        _ = first.nothing
    found = pandas_of(table)
    assert str(found["at"][0]) == "2026-01-01 09:00:00"
    assert found["s"][0].k == 1
    assert found["l"][0] == [Decimal("1.5")]


def test_sql_inside_expressions_is_found(session: RemoteFrames) -> None:
    rows = (
        session.table("t")
        .filter("a > (SELECT max(a) FROM secret)")
        .select_expr("reflect('a')", "b")
        .select(F.expr("c + 1"), "d", F.expr(str="e"))
        .where(F.col("f") == "no SQL")
    )
    assert sorted(texts_in(in_order(rows._recorded_node()))) == [
        "a > (SELECT max(a) FROM secret)", "b", "c + 1", "e", "reflect('a')",
    ]  # fmt: skip


# ---------------------------------------------------------------------- what a server refuses

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.sampled_from(["table", "call", "function", "lambda", "parameter", "column_of", "select", "expr", "__class__"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["node", "tuple", "dict", "row", "decimal", "timestamp", "bytes", "type", "duration", "x"]),
        inner,
        max_size=2,
    ),
    max_leaves=12,
)  # fmt: skip
FIELDS = ["op", "name", "consume", "text", "on", "method", "arguments", "named", "of", "item", "weights", "seed",
          "place", "parameters", "body", "arrow", "schema", "rows"]  # fmt: skip
OPS = st.sampled_from(
    ["table", "query", "local_table", "local_rows", "kept", "call", "part", "function", "column_of", "window",
     "parameter", "lambda", "exec"]
)  # fmt: skip
NODES = st.builds(
    lambda op, fields: {**fields, "op": op},
    OPS,
    st.dictionaries(st.sampled_from(FIELDS), JUNK | st.integers(0, 3) | st.just([]), max_size=6),
)


@settings(max_examples=400, deadline=None)
@given(JUNK | st.fixed_dictionaries({"format": st.just(1), "nodes": st.lists(JUNK | NODES, max_size=5)}))
def test_junk_is_no_plan(plan: Any) -> None:
    try:
        root = from_json(plan)
    except UserError:
        return
    round_trip(root)


GOOD = {
    "format": 1,
    "nodes": [
        {"op": "table", "name": "t", "consume": True},
        {"op": "function", "name": "col", "arguments": ["a"]},
        {"op": "call", "on": 1, "method": ">", "arguments": [1]},
        {"op": "call", "on": 0, "method": "filter", "arguments": [{"node": 2}], "named": {}},
    ],
}


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 3), st.sampled_from(FIELDS), JUNK | st.integers(-1, 5))
def test_a_plan_with_one_wrong_field(place: int, field: str, value: Any) -> None:
    plan = json.loads(json.dumps(GOOD))
    plan["nodes"][place][field] = value
    try:
        root = from_json(plan)
    except UserError:
        return
    for node in in_order(root):
        if isinstance(node, Call):
            assert node.method in allowed.METHODS[node.on.kind]


@pytest.mark.parametrize(
    "nodes",
    [
        [],
        [{"op": "call", "on": 0, "method": "select", "arguments": []}],
        [*GOOD["nodes"][:1], {"op": "call", "on": 0, "method": "rdd", "arguments": []}],  # type: ignore[index]
        [*GOOD["nodes"][:1], {"op": "call", "on": 0, "method": "__class__", "arguments": []}],  # type: ignore[index]
        [*GOOD["nodes"][:1], {"op": "call", "on": 0, "method": "_jdf", "arguments": []}],  # type: ignore[index]
        [*GOOD["nodes"][:1], {"op": "call", "on": 0, "method": "foreach", "arguments": []}],  # type: ignore[index]
        [*GOOD["nodes"][:1], *GOOD["nodes"][:1]],  # type: ignore[index]
        [{"op": "function", "name": "reflect", "arguments": []}],
        [{"op": "function", "name": "udf", "arguments": []}],
        [{"op": "function", "name": "sys", "arguments": []}],
        [{"op": "function", "name": "col", "arguments": ["a"], "named": {"_x": 1}}],
        [{"op": "function", "name": "from_xml", "arguments": ["a", "b", {"dict": [["rowValidationXSDPath", "/x"]]}]}],
        [{"op": "function", "name": "lit", "arguments": [{"decimal": "1e999999999"}]}],
        [{"op": "function", "name": "lit", "arguments": [10**200]}],
        [{"op": "function", "name": "lit", "arguments": ["\ud800"]}],
        [{"op": "parameter"}],
        [{"op": "table", "name": "t", "consume": 1}],
        [{"op": "table", "name": "t", "consume": True, "path": "/etc/passwd"}],
        [{"op": "local_table", "arrow": "no base64!", "schema": None, "pandas": False}],
    ],
)
def test_plans_that_are_refused(nodes: Any) -> None:
    with pytest.raises(UserError):
        from_json({"format": 1, "nodes": nodes})


def test_a_plan_of_another_format_says_so() -> None:
    with pytest.raises(UserError, match="same version"):
        from_json({**GOOD, "format": 2})


# ---------------------------------------------------------------------- the list of names


def _public(kind: Any) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_every_method_of_pyspark_is_allowed_or_refused() -> None:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame as SparkFrame
    from pyspark.sql import GroupedData, WindowSpec
    from pyspark.sql.readwriter import DataFrameWriter

    named = {name for name in allowed.COLUMN_METHODS if name.isidentifier() and name != "negative"}
    writer = {*allowed.WRITER_SETTINGS, *allowed.WRITER_REFUSED, "saveAsTable", "insertInto"}
    for kind, known in (
        (SparkFrame, {*allowed.FRAME_METHODS, *allowed.FRAME_BY_HAND, *allowed.FRAME_REFUSED}),
        (GroupedData, {*allowed.GROUPS_METHODS, *allowed.GROUPS_REFUSED}),
        (SparkColumn, named | allowed.COLUMN_BY_HAND),
        (WindowSpec, set(allowed.WINDOW_METHODS)),
        (DataFrameWriter, writer),
    ):
        assert known == _public(kind), kind
    assert not set(allowed.FRAME_METHODS) & {*allowed.FRAME_BY_HAND, *allowed.FRAME_REFUSED}


def test_every_function_of_pyspark_is_allowed_or_refused() -> None:
    from pyspark.sql import functions

    known = {*allowed.FUNCTIONS, *allowed.FUNCTIONS_REFUSED, *allowed.FUNCTIONS_BY_HAND}
    own = {
        name
        for name in _public(functions)
        if inspect.isfunction(found := getattr(functions, name)) and found.__module__.startswith("pyspark.sql")
    }
    assert own == known
    assert not allowed.FUNCTIONS & set(allowed.FUNCTIONS_REFUSED)


def test_what_is_written_by_hand_is_there() -> None:
    missing = [name for name in allowed.FRAME_BY_HAND if allowed.spelled(frozenset(vars(DataFrame)), name) is None]
    assert missing == []


def test_eager_methods_are_methods() -> None:
    assert {*allowed.FRAME_METHODS, *allowed.GROUPS_METHODS} >= allowed.EAGER_METHODS


# ---------------------------------------------------------------------- without PySpark

ROOT = Path(allowed.__file__).parents[1]


def test_a_client_loads_neither_pyspark_nor_java() -> None:
    program = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "delta"):
            raise ImportError(f"a client loaded {name}")
sys.meta_path.insert(0, Refuse())
from headrace import functions as F
from headrace.functions import Window, col, sum
from headrace.session import Session
from headrace.recording.session import RemoteFrames
class Lake: url = "http://lake.example"
frames = RemoteFrames(Lake())
rows = frames.table("t").filter(col("a") > 1).group_by("b").agg(sum("c").alias("d"))
rows.with_column("n", F.row_number().over(Window.partitionBy("b").orderBy("d")))
frames.create_dataframe([(1, "a")], "id INT, name STRING").join(rows, "id")
print(type(F.col("a")).__module__)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "headrace.recording.columns"


def test_nothing_in_recording_names_pyspark_at_its_top() -> None:
    for file in (ROOT / "recording").glob("*.py"):
        for statement in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                assert "pyspark" not in ast.unparse(statement), file


def test_functions_before_there_is_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace import functions

    monkeypatch.setattr(functions, "spark_is_here", lambda: False)
    assert isinstance(functions.col("a"), Column)
    assert isinstance(functions.to_date("a"), Column)
    assert functions.count_distinct("a")._recorded_node().name == "count_distinct"
    assert functions.broadcast(DataFrame(None, Table("t")))._recorded_node().method == "hint"  # type: ignore[arg-type]
    assert callable(functions.udf)
    assert {"col", "udf", "Window"} <= set(dir(functions))
    with pytest.raises(AttributeError):
        _ = functions.no_such_function


@pytest.mark.parametrize("name", sorted(allowed.FUNCTIONS_REFUSED))
def test_functions_that_cannot_be_written_down_are_refused_where_no_lake_is_open(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace import functions

    monkeypatch.setattr(functions, "spark_is_here", lambda: False)
    with pytest.raises(NotAllowed) as refused:
        getattr(functions, name)("x")
    assert refused.value.message == f"{name} cannot be used over a URL: {allowed.FUNCTIONS_REFUSED[name]}."
    assert "headrace.open(path)" in str(refused.value.hint)


def test_the_same_functions_are_pysparks_where_a_lake_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import functions as spark_functions

    from headrace import functions

    monkeypatch.setattr(functions, "spark_is_here", lambda: True)
    monkeypatch.setattr(spark_functions, "pandas_udf", lambda *given, **named: (given, named))
    assert functions.pandas_udf(len, returnType="int") == ((len,), {"returnType": "int"})
    assert functions.pandasUdf(len) == ((len,), {})
    with pytest.raises(NotAllowed):
        functions.unwrap_udt(F.col("a"))


def test_settings_of_a_session_over_a_url() -> None:
    with pytest.raises(BadSetting, match="not both"):
        Session.builder.configs({"service": "http://127.0.0.1:1", "path": "lake"}).create()
    with pytest.raises(BadSetting, match="no service"):
        Session.builder.configs({"service": "ftp://example.com"}).create()


# ---------------------------------------------------------------------- the server's side, without Spark


def test_both_sides_mean_the_same_by_a_query() -> None:
    from headrace.recording.session import QUERIES
    from headrace.statements import dispatch

    assert dispatch.QUERIES == QUERIES


def test_what_the_server_asks_of_an_action() -> None:
    from headrace.session.replaying import work_of

    work = work_of(GOOD, {"name": "take", "arguments": [5]})
    assert work.arguments == (5,)
    assert work.text == "take of t.filter((a > 1))"
    for action in (
        None,
        {},
        {"name": "take"},
        {"name": "take", "arguments": []},
        {"name": "take", "arguments": [True]},
        {"name": "take", "arguments": [{"node": 0}]},
        {"name": "rdd", "arguments": []},
        {"name": ["take"], "arguments": [1]},
        {"name": "save_as_table", "arguments": ["t", "append", {}, []]},
    ):
        with pytest.raises(UserError):
            work_of(GOOD, action)
    with pytest.raises(UserError):
        work_of(GOOD, {"name": "count", "arguments": []}, ["orders"])
    with pytest.raises(UserError, match="end with a DataFrame"):
        work_of({"format": 1, "nodes": GOOD["nodes"][1:2]}, {"name": "count", "arguments": []})  # type: ignore[index]


def test_settings_of_a_writer() -> None:
    from headrace.session.writing import checked

    def refuse(text: str) -> None:
        if "secret" in text:
            raise NotAllowed(text)

    good = [["mode", ["append"], {}], ["partitionBy", ["a", "b"], {}], ["option", ["mergeSchema", True], {}]]
    assert len(checked(refuse, {"replaceWhere": "a = 1"}, good)) == 3
    for options, call in (
        ({"path": "/x"}, None),
        ({"replaceWhere": "a = secret"}, None),
        ({1: 2}, None),
        ({}, ["option", ["path", "/x"], {}]),
        ({}, ["option", ["mergeSchema"], {"key": "path"}]),
        ({}, ["option", ["mergeSchema", True], {"key": "path"}]),
        ({}, ["options", [], {"path": "/x"}]),
        ({}, ["options", ["x"], {}]),
        ({}, ["format", ["parquet"], {}]),
        ({}, ["format", [], {"source": "parquet"}]),
        ({}, ["save", ["/x"], {}]),
        ({}, ["_jwrite", [], {}]),
        ({}, ["mode", [{}], {}]),
        ({}, ["mode"]),
    ):
        with pytest.raises(UserError):
            checked(refuse, options, [] if call is None else [call])


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["name", "arguments", "x"]), JUNK, max_size=3))
def test_junk_is_no_action(action: Any) -> None:
    from headrace.session.replaying import work_of

    try:
        work_of(GOOD, action)
    except UserError:
        pass
