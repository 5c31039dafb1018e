"""Aggregates of distinct values as two aggregates."""

from __future__ import annotations

import pytest

from headrace.ivm.maintainable import maintained
from headrace.plan.catalyst import can_be_kept
from headrace.plan.distinct import distinct_below
from headrace.plan.explain import call_text
from headrace.plan.nodes import Aggregate, AggregateCall, Column, Expression, Node, Plan, Project, Relation
from headrace.plan.query import BoundText, OutputColumn, Query

TABLE = Relation(
    source=0,
    columns=tuple(
        (own, Column(name=f"{own}_1", type=kind)) for own, kind in (("k", "int"), ("v", "int"), ("w", "double"))
    ),
)
KEY = Expression(name="k_1", text="k_1", type="int")


def distinct(function: str, *texts: str, kind: str = "int") -> AggregateCall:
    values = tuple(Expression(name="", text=text, type=kind) for text in texts)
    text = f"{function}(DISTINCT {', '.join(texts)})"
    name = f"{function}_9"
    return AggregateCall(
        name=name, function=function, argument=None, argument_type=None, type="bigint", text=text, distinct_of=values
    )


def call(function: str, argument: str | None, kind: str) -> AggregateCall:
    return AggregateCall(
        name=f"{function}_8", function=function, argument=argument, argument_type=kind, type=kind, filter=None
    )


def rewritten(*calls: AggregateCall, keys: tuple[Expression, ...] = (KEY,)) -> Aggregate:
    root = distinct_below(Plan(root=Aggregate(child=TABLE, keys=keys, calls=calls), columns=())).root
    assert isinstance(root, Aggregate)
    return root


def test_two_aggregates_with_the_same_output() -> None:
    calls = (distinct("count", "v_1"), call("min", "w_1", "double"))
    found = rewritten(*calls)
    assert found.output == Aggregate(child=TABLE, keys=(KEY,), calls=calls).output
    below = found.child
    assert isinstance(below, Aggregate)
    assert [key.name for key in below.keys] == ["k_1", "v_1"]
    assert [call_text(each) for each in found.calls] == ["count(DISTINCT v_1)", "min(w_1)"]
    assert [each.argument for each in found.calls] == ["v_1", "min_8_each"]
    assert rewritten(*found.calls).child == TABLE, "what is written as two stays so"


def test_values_that_are_keys_or_come_twice_are_there_once() -> None:
    below = rewritten(distinct("count", "k_1", "v_1 + 1", "k_1")).child
    assert isinstance(below, Aggregate)
    assert [(key.name, key.text) for key in below.keys] == [("k_1", "k_1"), ("count_9_v1", "v_1 + 1")]


@pytest.mark.parametrize(
    "calls",
    [
        (distinct("count", "v_1"), distinct("sum", "w_1")),
        (distinct("sum", "w_1", kind="double"),),
        (distinct("count", "v_1"), call("sum", "w_1", "double")),
        (distinct("count", "v_1"), call("avg", "v_1", "double")),
        (distinct("count", "v_1", kind="map<int,int>"),),
        (call("count", None, "bigint"),),
    ],
)
def test_what_stays_one(calls: tuple[AggregateCall, ...]) -> None:
    assert rewritten(*calls).child == TABLE


def test_a_count_of_rows_beside_it_needs_a_key() -> None:
    calls = (distinct("count", "v_1"), call("count", None, "bigint"))
    assert rewritten(*calls).child != TABLE
    assert rewritten(*calls, keys=()).child == TABLE


def test_a_plan_that_would_be_nested_too_deep_to_be_kept_stays_as_it_is() -> None:
    node: Node = TABLE
    for number in range(70):
        named = distinct("count", node.output[1].name).model_copy(update={"name": f"n_{number}"})
        node = Aggregate(child=node, keys=(KEY,), calls=(named,))
        node = Project(child=node, expressions=(KEY, Expression(name=f"v_{number}", text=f"n_{number}", type="bigint")))
    text = "SELECT 1"
    query = Query(
        text=text, resolved_text=text, bound=BoundText(pieces=(text,)), sources=(), definitions=(),
        columns=(OutputColumn(name="k", type="int"), OutputColumn(name="n", type="bigint")),
        plan=Plan(root=node, columns=(("k", node.output[0]), ("n", node.output[1]))),
    )  # fmt: skip
    assert query.plan is not None
    assert can_be_kept(query.plan)
    assert not can_be_kept(distinct_below(query.plan))
    assert maintained(query).plan == query.plan
