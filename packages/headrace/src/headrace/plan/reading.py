"""Read a lowered Catalyst plan into our algebra.

Two passes over the plan. The first notes every column, and gives each a name of its own; the second builds our nodes,
asking Spark for the text of each expression over those names (`spelling`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from headrace.plan.calls import depends_on_ties, read_call
from headrace.plan.constants import read_values
from headrace.plan.jvm import CATALYST, Jvm, items, kind, optional
from headrace.plan.nodes import (
    Aggregate,
    AnyJoin,
    Column,
    Expand,
    Explode,
    Expression,
    Filter,
    InnerJoin,
    Node,
    OuterJoin,
    Plan,
    Project,
    Relation,
    SemiJoin,
    UnionAll,
    Window,
)
from headrace.plan.pruning import prune
from headrace.plan.spelling import NoRule, Speller
from headrace.plan.types import comparable, has_floats

_LIMIT = "LIMIT inside the query, or without an ORDER BY over result columns"
# What has no rule, in the words of someone who wrote the query.
_OPERATORS = {
    "GlobalLimit": _LIMIT,
    "LocalLimit": _LIMIT,
    "Offset": "OFFSET",
    "Tail": _LIMIT,
    "LateralJoin": "LATERAL subquery",
    "UnionLoop": "WITH RECURSIVE",
    "WithCTE": "WITH RECURSIVE",
    "Pivot": "PIVOT",
    "AsOfJoin": "as-of join",
    "ScriptTransformation": "TRANSFORM … USING",
}
_JOINS = (
    "Inner", "Cross", "LeftOuter", "RightOuter", "FullOuter", "LeftSemi", "LeftAnti", "ExistenceJoin",
)  # fmt: skip
_OTHER_JOINS = {"LeftSingle": "correlated scalar subquery that may return several rows", "AsOf": "as-of join"}
_CONSTANT = ("LocalRelation", "ResolvedInlineTable", "Range", "OneRowRelation")
_OUTER_FORMS = {"explode": "explode_outer", "posexplode": "posexplode_outer", "inline": "inline_outer"}

# Order does not matter in a table, nor how rows are spread over tasks; nothing that we read depends on either.
_TRANSPARENT = {"Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions", "SubqueryAlias"}


@dataclass
class _Seen:
    """A plan node in the first pass."""

    plan: Any
    kind: str
    children: list[_Seen]
    groups: list[Any] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)


def read_plan(jvm: Jvm, lowered: Any, public: list[str], tables: dict[str, int], leaves: dict[int, int]) -> Plan:
    """Our plan for a lowered one. `tables` maps db.table, `leaves` a dynamic table's column ids, to sources.

    Raises NoRule.
    """
    reader = _Reader(jvm, tables, leaves)
    seen = reader.survey(lowered)
    output = [reader.speller.column(attribute) for attribute in items(lowered.output())]
    reader.speller.name_columns()
    root = reader.build(seen)
    reader.speller.check_texts()
    columns = tuple(zip(public, output, strict=True))
    return Plan(root=prune(root, {column.name for column in output}), columns=columns)


class _Reader:
    def __init__(self, jvm: Jvm, tables: dict[str, int], leaves: dict[int, int]) -> None:
        self.jvm = jvm
        self.tables = tables
        self.leaves = leaves
        self.speller = Speller(jvm)
        self.made = 0
        self.split: Any = jvm.object(f"{CATALYST}.optimizer.PushPredicateThroughJoin")

    # -- first pass: columns and their names ---------------------------------------------------------------------

    def survey(self, plan: Any) -> _Seen:
        """Note the columns of this node and of everything below it."""
        name = kind(plan)
        if name in _TRANSPARENT:
            return self.survey(items(plan.children())[0])
        seen = _Seen(plan, name, [])
        if name == "LogicalRelation" or (name == "LocalRelation" and self._dynamic_source(plan) is not None):
            self.speller.note(items(plan.output()))
        elif name == "Project":
            self.speller.note(expression.toAttribute() for expression in items(plan.projectList()))
        elif name == "Aggregate":
            self._survey_aggregate(seen)
        elif name == "Generate":
            self.speller.note(items(plan.generatorOutput()))
        elif name == "Join":
            join = kind(plan.joinType()).removesuffix("$")
            if join not in _JOINS:
                raise NoRule(_OTHER_JOINS.get(join, f"{join} join"))
            if join == "ExistenceJoin":
                self.speller.note([plan.joinType().exists()])
        elif name == "Window":
            self.speller.note(expression.toAttribute() for expression in items(plan.windowExpressions()))
        elif name in ("Union", "Expand", *_CONSTANT):
            self.speller.note(items(plan.output()))
        elif name != "Filter":
            raise NoRule(_OPERATORS.get(name, f"operator {name}"))
        children = [seen.plan.child()] if name == "Aggregate" else items(plan.children())
        if name == "Union":
            children = _flat_union(children)
        seen.children = [self.survey(child) for child in children]
        return seen

    def _survey_aggregate(self, seen: _Seen) -> None:
        # Spark's own split of an aggregation: keys, aggregate calls without repetitions, and the rest over both.
        parts = optional(self.jvm.object(f"{CATALYST}.planning.PhysicalAggregation").unapply(seen.plan))
        if parts is None:
            raise NoRule("Python aggregate function")
        seen.groups, seen.calls, seen.results = items(parts._1()), items(parts._2()), items(parts._3())
        self.speller.note(group.toAttribute() for group in seen.groups)
        self.speller.note(call.resultAttribute() for call in seen.calls)
        self.speller.note(result.toAttribute() for result in seen.results)

    # -- second pass: nodes --------------------------------------------------------------------------------------

    def build(self, seen: _Seen) -> Node:
        """Our node for one of theirs."""
        match seen.kind:
            case "LocalRelation" if self._dynamic_source(seen.plan) is None:
                return read_values(self.jvm, self.speller, seen.plan)
            case "LogicalRelation" | "LocalRelation":
                return self._relation(seen.plan)
            case "ResolvedInlineTable" | "Range" | "OneRowRelation":
                return read_values(self.jvm, self.speller, seen.plan)
            case "Project":
                return self._project(self.build(seen.children[0]), items(seen.plan.projectList()))
            case "Filter":
                return Filter(child=self.build(seen.children[0]), condition=self.speller.text(seen.plan.condition()))
            case "Join":
                only = _only_side(seen)
                return self._join(seen) if only is None else self.build(only)
            case "Aggregate":
                return self._aggregate(seen)
            case "Union":
                return self._union(seen)
            case "Generate":
                return self._generate(seen)
            case "Window":
                return self._window(seen)
            case "Expand":
                return self._expand(seen)
        raise NoRule(f"operator {seen.kind}")

    def _dynamic_source(self, plan: Any) -> int | None:
        output = items(plan.output())
        return self.leaves.get(int(output[0].exprId().id())) if output else None

    def _relation(self, plan: Any) -> Relation:
        source = self._dynamic_source(plan)
        if source is None:
            source = self.tables.get(table_name(plan) or "")
        if source is None:
            raise NoRule(f"read of {plan.simpleString(1)}")
        columns = tuple((str(attribute.name()), self.speller.column(attribute)) for attribute in items(plan.output()))
        return Relation(source=source, columns=columns)

    def _named(self, expression: Any) -> Expression:
        column = self.speller.column(expression)
        text = column.name if kind(expression) == "AttributeReference" else self.speller.text(expression.child())
        return Expression(name=column.name, text=text, type=column.type)

    def _project(self, child: Node, expressions: list[Any]) -> Project:
        named: list[Expression] = []
        names: set[str] = set()
        for expression in map(self._named, expressions):
            name = expression.name
            while name in names:  # `SELECT x, x`: only a UNION, which goes by position, can tell them apart
                name = f"{name}_again"
            names.add(name)
            named.append(Expression(name=name, text=expression.text, type=expression.type))
        return Project(child=child, expressions=tuple(named))

    def _join(self, seen: _Seen) -> AnyJoin:
        how = kind(seen.plan.joinType()).removesuffix("$")
        if how == "RightOuter":
            seen = replace(seen, children=seen.children[::-1])
        left, right = (self.build(child) for child in seen.children)
        if {column.name for column in left.output} & {column.name for column in right.output}:
            raise NoRule("join of a table with itself that Spark did not tell apart")
        equalities: list[tuple[str, str]] = []
        null_safe: list[tuple[str, str]] = []
        rest: list[str] = []
        condition = optional(seen.plan.condition())
        sides = [child.plan.outputSet() for child in seen.children]
        for conjunct in items(self.split.splitConjunctivePredicates(condition)) if condition is not None else []:
            name = kind(conjunct)
            pair = self._sides(conjunct, sides) if name in ("EqualTo", "EqualNullSafe") else None
            if pair is None:
                if name == "Or" and how in ("LeftAnti", "ExistenceJoin"):
                    _require_one_zero(conjunct)
                rest.append(f"({self.speller.text(conjunct)})")
            else:
                (equalities if name == "EqualTo" else null_safe).append(
                    (self.speller.text(pair[0]), self.speller.text(pair[1]))
                )
        parts: dict[str, Any] = {
            "left": left,
            "right": right,
            "equalities": tuple(equalities),
            "null_safe_equalities": tuple(null_safe),
            "condition": " AND ".join(rest) or None,
        }
        if how in ("Inner", "Cross"):
            return InnerJoin(**parts)
        if how in ("LeftOuter", "RightOuter", "FullOuter"):
            return OuterJoin(**parts, full=how == "FullOuter")
        flag = self.speller.column(seen.plan.joinType().exists()) if how == "ExistenceJoin" else None
        return SemiJoin(**parts, anti=how == "LeftAnti", flag=flag)

    def _window(self, seen: _Seen) -> Window:
        keys = tuple(self._key(expression) for expression in items(seen.plan.partitionSpec()))
        functions = []
        for expression in items(seen.plan.windowExpressions()):
            column = self.speller.column(expression.toAttribute())
            functions.append(
                Expression(name=column.name, text=self.speller.window(expression.child()), type=column.type)
            )
        order: tuple[str, ...] = ()
        if any(depends_on_ties(expression.child()) for expression in items(seen.plan.windowExpressions())):
            order = tuple(self.speller.text(each.child()) for each in items(seen.plan.orderSpec())) or ("1",)
        return Window(child=self.build(seen.children[0]), keys=keys, functions=tuple(functions), order=order)

    def _key(self, expression: Any) -> Expression:
        """An expression to partition by; it has no name in Spark's plan."""
        if kind(expression) == "AttributeReference":
            return self._named(expression)
        text, type_text = self.speller.text(expression), str(expression.dataType().sql())
        _require_groupable(type_text, "PARTITION BY")
        self.made += 1
        return Expression(name=f"__hr_p{self.made}", text=text, type=type_text)

    def _expand(self, seen: _Seen) -> Expand:
        projections = tuple(
            tuple(self.speller.text(each) for each in items(projection))
            for projection in items(seen.plan.projections())
        )
        output = tuple(self.speller.column(attribute) for attribute in items(seen.plan.output()))
        return Expand(child=self.build(seen.children[0]), projections=projections, output=output)

    @staticmethod
    def _sides(equality: Any, sides: list[Any]) -> tuple[Any, Any] | None:
        """The two operands, the one over the left input first; None when they are not one of each."""
        first, second = equality.left(), equality.right()
        if first.references().isEmpty() or second.references().isEmpty():
            return None
        for one, other in ((first, second), (second, first)):
            if one.references().subsetOf(sides[0]) and other.references().subsetOf(sides[1]):
                return one, other
        return None

    def _aggregate(self, seen: _Seen) -> Node:
        keys: dict[str, Expression] = {}
        for group in seen.groups:
            key = self._named(group)
            _require_groupable(key.type, "GROUP BY or DISTINCT")
            keys[key.name] = key  # GROUP BY x, x is GROUP BY x
        calls = tuple(read_call(self.jvm, self.speller, call) for call in seen.calls)
        if not keys and not calls:
            raise NoRule("aggregation without GROUP BY and without an aggregate function")
        node = Aggregate(child=self.build(seen.children[0]), keys=tuple(keys.values()), calls=calls)
        results = self._project(node, seen.results)
        as_is = [expression.name == expression.text for expression in results.expressions]
        return node if all(as_is) and results.output == node.output else results

    def _union(self, seen: _Seen) -> UnionAll:
        inputs = []
        for child in seen.children:
            node, wanted = (
                self.build(child),
                [self.speller.column(attribute) for attribute in items(child.plan.output())],
            )
            if child.kind != "Project" and list(node.output) != wanted:
                passed = tuple(Expression(name=column.name, text=column.name, type=column.type) for column in wanted)
                node = Project(child=node, expressions=passed)
            inputs.append(node)
        output = tuple(self.speller.column(attribute) for attribute in items(seen.plan.output()))
        return UnionAll(inputs=tuple(inputs), output=output)

    def _generate(self, seen: _Seen) -> Node:
        generator = seen.plan.generator()
        if kind(generator) == "ReplicateRows":
            return self._replicated(seen, generator)
        text = self.speller.text(generator, check=False)
        name = str(generator.prettyName())
        if seen.plan.outer():
            if name not in _OUTER_FORMS or not text.startswith(f"{name}("):
                raise NoRule(f"LATERAL VIEW OUTER {name}")
            text = _OUTER_FORMS[name] + text[len(name) :]
        generated = tuple(self.speller.column(attribute) for attribute in items(seen.plan.generatorOutput()))
        self.speller.generator_checks.append((text, generator, [column.type for column in generated]))
        node = Explode(child=self.build(seen.children[0]), generator=text, generated=generated)
        # The input column that is exploded is seldom wanted above.
        wanted = [self.speller.column(attribute) for attribute in items(seen.plan.output())]
        if list(node.output) == wanted:
            return node
        passed = tuple(Expression(name=column.name, text=column.name, type=column.type) for column in wanted)
        return Project(child=node, expressions=passed)

    def _replicated(self, seen: _Seen, generator: Any) -> Node:
        """What INTERSECT ALL and EXCEPT ALL are rewritten to: each row as often as a counter says."""
        count, *values = items(generator.children())
        # They have the names of what they repeat.
        originals = [self.speller.column(attribute) for attribute in items(seen.plan.generatorOutput())]
        generated = tuple(Column(name=f"{column.name}_again", type=column.type) for column in originals)
        fields = ", ".join(
            f"{self.speller.text(value)} AS {column.name}" for value, column in zip(values, generated, strict=True)
        )
        text = f"inline(array_repeat(struct({fields}), CAST({self.speller.text(count)} AS INT)))"
        node = Explode(child=self.build(seen.children[0]), generator=text, generated=generated)
        passed = tuple(
            Expression(name=column.name, text=again.name, type=column.type)
            for column, again in zip(originals, generated, strict=True)
        )
        return Project(child=node, expressions=passed)


def _flat_union(inputs: list[Any]) -> list[Any]:
    """The inputs of a union; in the place of one that is a union itself, that one's. Spark nests them, two by two."""
    found: list[Any] = []
    waiting = inputs[::-1]
    while waiting:
        plan = waiting.pop()
        while kind(plan) in _TRANSPARENT:
            plan = items(plan.children())[0]
        if kind(plan) == "Union":
            waiting += items(plan.children())[::-1]
        else:
            found.append(plan)
    return found


def _only_side(seen: _Seen) -> _Seen | None:
    """A cross join with one row of no columns is its other side. Such a row is what Spark leaves of a scalar subquery
    that nobody asks for."""
    how = kind(seen.plan.joinType()).removesuffix("$")
    if how not in ("Inner", "Cross", "LeftOuter") or optional(seen.plan.condition()) is not None:
        return None
    left, right = seen.children
    if _is_bare_row(right):
        return left
    return right if how != "LeftOuter" and _is_bare_row(left) else None


def _is_bare_row(seen: _Seen) -> bool:
    if seen.kind == "Project" and seen.plan.projectList().isEmpty():
        return _is_bare_row(seen.children[0])
    return seen.kind == "Aggregate" and not (seen.groups or seen.calls or seen.results)


def _require_one_zero(condition: Any) -> None:
    """NOT IN is an anti join on `a = b OR isnull(a = b)`. Where that is all, Spark has a join of its own for it, which
    tells 0.0 from -0.0; any other way to the same rows does not."""
    equal, null = condition.left(), condition.right()
    if kind(equal) == "EqualTo" and kind(null) == "IsNull" and kind(null.child()) == "EqualTo":
        type_text = str(equal.left().dataType().sql())
        if has_floats(type_text):
            raise NoRule(f"NOT IN over values of type {type_text.lower()}")


def _require_groupable(type_text: str, where: str) -> None:
    if not comparable(type_text) or "VOID" in type_text:
        raise NoRule(f"{where} on a column of type {type_text.lower()}")


def table_name(relation: Any) -> str | None:
    """db.table of a leaf that is a table of the catalog."""
    table = optional(relation.catalogTable())
    if table is None:
        return None
    identifier = table.identifier()
    return f"{identifier.database().get()}.{identifier.table()}".lower()
