"""Rounded values are followed through a plan, to where they would decide something."""

from __future__ import annotations

import pytest

from headrace.ivm.maintainable import maintained
from headrace.plan.certainty import carriers
from headrace.plan.nodes import (
    Aggregate,
    AggregateCall,
    Column,
    Expression,
    Filter,
    InnerJoin,
    Node,
    Plan,
    Project,
    Relation,
    UnionAll,
    Window,
)
from headrace.plan.query import BoundText, OutputColumn, Query, Source

K, X = Column(name="k_1", type="INT"), Column(name="x_2", type="DOUBLE")
KEY = Expression(name="k_1", text="k_1", type="INT")
T = Relation(source=0, columns=(("k", K), ("x", X)))
OTHER = Relation(source=0, columns=(("k", Column(name="k_8", type="INT")), ("x", Column(name="x_9", type="DOUBLE"))))


def called(function: str, argument_type: str = "DOUBLE", type_text: str = "DOUBLE") -> Aggregate:
    call = AggregateCall(
        name="s_3", function=function, argument="x_2", argument_type=argument_type, type=type_text
    )  # fmt: skip
    return Aggregate(child=T, keys=(KEY,), calls=(call,))


SUM = called("sum")
DOUBLED = Project(child=SUM, expressions=(KEY, Expression(name="d_4", text="(s_3 * 2.0D)", type="DOUBLE")))
OVER = Window(
    child=T, keys=(KEY,), functions=(Expression(name="a_5", text="avg(x_2) OVER (PARTITION BY k_1)", type="DOUBLE"),)
)


def reason(root: Node, *shown: Column) -> str | None:
    columns = shown or root.output
    query = Query(
        text="", resolved_text="", bound=BoundText(pieces=()),
        sources=(Source(workspace="main", schema_name="public", table="t", path="/t", kind="table"),),
        columns=tuple(OutputColumn(name=column.name, type=column.type) for column in columns),
        plan=Plan(root=root, columns=tuple((column.name, column) for column in columns)),
    )  # fmt: skip
    return maintained(query).unsupported


@pytest.mark.parametrize(
    ("node", "found"),
    [
        (SUM, {"s_3"}),
        (DOUBLED, {"s_3", "d_4"}),
        (OVER, {"a_5"}),
        (called("sum", "DECIMAL(10,2)", "DECIMAL(20,2)"), set()),
        (called("sum", "INT", "BIGINT"), set()),
        (called("avg", "INT"), set()),
        (called("avg", "BIGINT"), {"s_3"}),
        (called("stddev"), {"s_3"}),
        (called("max"), set()),
        (UnionAll(inputs=(SUM, OTHER), output=(Column(name="k_6", type="INT"), Column(name="u_7", type="DOUBLE"))),
         {"s_3", "u_7"}),
    ],
    ids=["sum", "computed from it", "window", "decimal", "whole numbers", "average of INT", "average of BIGINT",
         "deviation", "maximum", "union"],
)  # fmt: skip
def test_what_is_rounded(node: Node, found: set[str]) -> None:
    assert set(carriers(node)) == found


def joined(left: Node, **parts: object) -> InnerJoin:
    return InnerJoin.model_validate({"left": left, "right": OTHER, **parts})


@pytest.mark.parametrize(
    "root",
    [
        joined(Filter(child=DOUBLED, condition="(d_4 > 1.0D)"), equalities=(("k_1", "k_8"),)),
        joined(SUM, equalities=(("s_3", "x_9"),)),
        joined(SUM, condition="(s_3 < x_9)"),
        Aggregate(child=SUM, keys=(Expression(name="s_3", text="s_3", type="DOUBLE"),), calls=()),
        Window(child=SUM, keys=(Expression(name="s_3", text="s_3", type="DOUBLE"),), functions=()),
        joined(Filter(child=OVER, condition="(x_2 > a_5)"), equalities=(("k_1", "k_8"),)),
    ],
    ids=["filter", "join", "condition", "group", "partition", "filter on a window"],
)
def test_nothing_may_be_decided_by_it(root: Node) -> None:
    assert "rounded, by which a filter, join or group further up decides" in (reason(root) or "")


@pytest.mark.parametrize(
    "root",
    [
        joined(DOUBLED, equalities=(("k_1", "k_8"),)),
        Filter(child=DOUBLED, condition="(d_4 > 1.0D)"),
        Filter(child=OVER, condition="(x_2 > a_5)"),
        joined(Filter(child=called("sum", "INT", "BIGINT"), condition="(s_3 > 1)"), equalities=(("k_1", "k_8"),)),
    ],
    ids=["shown", "above the root's groups", "above the root's window", "exact"],
)
def test_the_rest_is_maintained(root: Node) -> None:
    assert reason(root) is None


def test_a_window_whose_keys_are_not_shown_is_subtracted() -> None:
    root = Project(
        child=Filter(child=OVER, condition="(x_2 > a_5)"),
        expressions=(Expression(name="x_2", text="x_2", type="DOUBLE"),),
    )
    assert "rounded" in (reason(root) or "")
