"""What a table with another query can take over from its stored rows, so that no source has to be read.

Kept are the rows of a query that gives the same rows with other columns, each of which is

    a stored column           under its name or another, at the same place or another
    computed from stored ones an expression over columns that are stored as they are
    computed from the state   where the root is an aggregate: another use of its keys and of the aggregates it had
    new in its source         the source did not have it when the rows were computed: NULL in all of them
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from headrace.ivm.layout import COUNT, Grouped, grouped_root, layout_of
from headrace.ivm.rules import bag, grouped
from headrace.ivm.sharing import canonical, words_in_literals
from headrace.names import quote
from headrace.plan.explain import call_text, plain
from headrace.plan.nodes import Aggregate, AggregateCall, Expression, Node, Plan, Project, Relation, Window, walk
from headrace.plan.pruning import names_in, names_used, prune
from headrace.plan.query import Query

IsNew = Callable[[int, str], bool]
"""Whether a source, by its place, did not have a column when the stored rows were computed."""
Texts = dict[str, str]


def stored_texts(before: Query, after: Query, is_new: IsNew) -> Texts | str | None:
    """What to select from the stored rows of `before` to have those of `after`: its public columns, or where the root
    is an aggregate, its hidden ones. When that is not enough, why, in a few words; None when it takes more of them."""
    if before.plan is None or after.plan is None:
        return None
    if [source.path for source in before.sources] != [source.path for source in after.sources]:
        return None
    if before.uses_current_date or after.uses_current_date:
        return "current_date is used"
    old, new = grouped_root(before.plan), grouped_root(after.plan)
    if old is None and new is None:
        return _of_bag(before.plan, after.plan, after.text, is_new)
    return None if old is None or new is None else _of_groups(old, new, after.text)


def kept_rows(live: DataFrame, texts: Texts, after: Query, sequence: int) -> DataFrame:
    """The storage rows of `after` from the live ones of the query before it."""
    rows = live.selectExpr(*(f"{text} AS {quote(name)}" for name, text in texts.items()))
    layout = layout_of(after)
    root = grouped_root(after.plan)
    if root is None or after.plan is None:
        return bag.whole(rows, layout, sequence, searchable=True)
    return grouped.finished(rows, root, after.plan, layout, sequence)


# ---------------------------------------------------------------------- groups


def _of_groups(old: Grouped, new: Grouped, query: str) -> Texts | str | None:
    known = {_meaning(old.aggregate, (call,)): place for place, call in enumerate(old.aggregate.calls)}
    found = [known.get(_meaning(new.aggregate, (call,))) for call in new.aggregate.calls]
    places = [place for place in found if place is not None]
    if len(places) < len(found):
        groups = _meaning(old.aggregate, ())
        if groups is None or groups != _meaning(new.aggregate, ()):
            return None
        lacking = next(call for call, place in zip(new.aggregate.calls, found, strict=True) if place is None)
        told = plain(new.aggregate, call_text(lacking))
        return f"{told if _is_written_in(query, told) else f'{lacking.function}(…)'} was not stored"
    matched = tuple(old.aggregate.calls[place] for place in places)
    same = _meaning(old.aggregate, matched)
    if same is None or same != _meaning(new.aggregate, new.aggregate.calls):
        return None
    texts = {name: name for name, _ in new.key_columns} | {COUNT: COUNT}
    for state, place in zip(new.states, places, strict=True):
        pairs = zip(state.columns, old.states[place].columns, strict=True)
        texts |= {own.name: stored.name for own, stored in pairs}
    return texts


def _meaning(node: Aggregate, calls: tuple[AggregateCall, ...]) -> str | None:
    """The aggregate with only these calls, whatever its columns are called."""
    narrow = node.model_copy(update={"calls": calls})
    return canonical(prune(narrow, {column.name for column in narrow.output}))


# ---------------------------------------------------------------------- rows


def _of_bag(before: Plan, after: Plan, query: str, is_new: IsNew) -> Texts | str | None:
    old_core, old = _over_core(before)
    core, new = _over_core(after)
    if old is None or new is None:
        return None
    by_name = {each.name: each for each in old}
    known: dict[str | None, list[str]] = {}
    for each in old:
        known.setdefault(_rows_meaning(old_core, [each]), []).append(each.name)

    def stored_as(wanted: Expression) -> str | None:
        alike = known.get(_rows_meaning(core, [wanted]), [])
        return wanted.name if wanted.name in alike else next(iter(alike), None)

    pairs = [(each, stored_as(each)) for each in new]
    inner = set().union(*(names_in(each.text) for each, name in pairs if name is None))
    parts = [Expression(name="", text=c.name, type=c.type) for c in core.output if c.name in inner]
    found = [(each, name) for each, name in (*pairs, *((part, stored_as(part)) for part in parts)) if name is not None]
    same = _rows_meaning(core, [each for each, _ in found])
    if not found or same is None or same != _rows_meaning(old_core, [by_name[name] for _, name in found]):
        return None
    columns = {column.name for column in core.output}
    stored = {each.text: name for each, name in found if each.text in columns}
    texts: Texts = {}
    for each, name in pairs:
        if name is not None:
            texts[each.name] = quote(name)
        elif _rows_meaning(core, [each]) is not None and names_in(each.text) & columns <= set(stored):
            texts[each.name] = f"CAST({_put_in(each.text, stored)} AS {each.type})"
        elif _is_new_in_its_source(core, each.text, is_new):
            texts[each.name] = f"CAST(NULL AS {each.type})"
        else:
            return _lacking(core, each, query, names_in(each.text) & columns - set(stored))
    return texts


def _lacking(core: Node, wanted: Expression, query: str, names: set[str]) -> str | None:
    """What a public column needs of the core and is not stored: one of these names."""
    for node in walk(core):
        if isinstance(node, Window) and any(function.name in names for function in node.functions):
            return f"the window function of {wanted.name} was not stored"
        if isinstance(node, Relation):
            own = next((own for own, column in node.columns if column.name in names), None)
            if own is not None:
                told = own if _is_written_in(query, own) else wanted.name
                return f"the column {told} was not stored"
    return None


def _is_written_in(query: str, text: str) -> bool:
    """Whether all words of a text stand in the query. Others are of a view, whose tables not everybody may read.

    >>> _is_written_in("SELECT Max(price) FROM v", "max(price)"), _is_written_in("SELECT max(x) FROM v", "max(pay)")
    (True, False)
    """
    return set(re.findall(r"\w+", text.lower())) <= set(re.findall(r"\w+", query.lower()))


def _over_core(plan: Plan) -> tuple[Node, list[Expression] | None]:
    """What is below the projections at the top, and each public column as an expression over it; None in place of
    these when a literal is spelled like a column."""
    node: Node = plan.root
    texts = {public: column.name for public, column in plan.columns}
    while isinstance(node, Project):
        below = {expression.name: expression.text for expression in node.expressions}
        if any(word in below for text in texts.values() for word in words_in_literals(text)):
            return node, None
        texts = {public: _nested(text, below) for public, text in texts.items()}
        node = node.child
    return node, [Expression(name=public, text=texts[public], type=column.type) for public, column in plan.columns]


def _nested(text: str, below: Texts) -> str:
    """The text over the columns below, each in brackets unless it stands alone."""
    if text in below:
        return below[text]
    return re.sub(r"\w+", lambda word: f"({below[word[0]]})" if word[0] in below else word[0], text)


def _put_in(text: str, stored: Texts) -> str:
    return re.sub(r"\w+", lambda word: quote(stored[word[0]]) if word[0] in stored else word[0], text)


def _rows_meaning(core: Node, expressions: Sequence[Expression]) -> str | None:
    """These expressions over the core, whatever its columns are called."""
    numbered = tuple(
        Expression(name=f"__hr_c{place}", text=each.text, type=each.type) for place, each in enumerate(expressions)
    )
    whole = Project(child=core, expressions=numbered)
    return canonical(whole.model_copy(update={"child": prune(core, names_used(whole))}))


def _is_new_in_its_source(core: Node, name: str, is_new: IsNew) -> bool:
    relations = [node for node in walk(core) if isinstance(node, Relation)]
    return any(column.name == name and is_new(node.source, own) for node in relations for own, column in node.columns)
