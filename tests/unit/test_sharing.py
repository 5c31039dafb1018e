"""Parts of a plan that are the same but for the names of their columns."""

from __future__ import annotations

from headrace.ivm.sharing import canonical
from headrace.plan.nodes import Column, Filter, Relation


def _filter(name: str, condition: str, own: str = "price", kind: str = "int") -> Filter:
    return Filter(child=Relation(source=0, columns=((own, Column(name=name, type=kind)),)), condition=condition)


def test_names_do_not_matter() -> None:
    assert canonical(_filter("price_1", "price_1 > 3")) == canonical(_filter("price_2", "price_2 > 3"))


def test_everything_else_does() -> None:
    one = canonical(_filter("price_1", "price_1 > 3"))
    assert one != canonical(_filter("price_2", "price_2 > 4"))
    assert one != canonical(_filter("price_2", "price_2 > 3", own="cost"))
    assert one != canonical(_filter("price_2", "price_2 > 3", kind="bigint"))


def test_what_is_only_spelled_like_a_column_is_not_renamed() -> None:
    assert canonical(_filter("price_1", "price_1 = 'price_1'")) is None
    assert canonical(_filter("price_1", "price_1 > 3", own="price_1")) is None
    assert canonical(_filter("price_1", "price_1.x > 3", kind="struct<price_1:int>")) is None
