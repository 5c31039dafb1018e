"""A plan as people read it."""

from __future__ import annotations

from headrace.plan.explain import tree
from headrace.plan.nodes import Aggregate, AggregateCall, Column, Expression, Filter, Relation


def test_columns_have_the_names_that_the_user_gave_them() -> None:
    amount, shop = Column(name="amount_17", type="int"), Column(name="shop_2_18", type="int")
    relation = Relation(source=0, columns=(("amount", amount), ("shop_2", shop)))
    kept = Filter(child=relation, condition="((amount_17 > 5) AND (shop_2_18 <> 17))")
    total = AggregateCall(
        name="sum_amount_17_30", function="sum", argument="amount_17", argument_type="int", type="bigint"
    )
    big = AggregateCall(
        name="count_31", function="count", argument=None, argument_type=None, type="bigint", filter="(amount_17 > 9)"
    )
    root = Aggregate(child=kept, keys=(Expression(name="shop_2_18", text="shop_2_18", type="int"),), calls=(total, big))
    shown = [(line.depth, line.operator, line.detail) for line in tree(root, ("main.public.sales",))]
    assert shown == [
        (0, "aggregate", "by shop_2: sum(amount), count(*) FILTER (WHERE (amount > 9))"),
        (1, "filter", "((amount > 5) AND (shop_2 <> 17))"),
        (2, "relation", "main.public.sales"),
    ]
