"""Read a lowered Catalyst plan into our algebra.

Two passes over the plan. The first notes every column, and gives each a name of its own; the second builds our nodes,
asking Spark for the text of each expression over those names (`spelling`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.plan.jvm import CATALYST, Jvm, items, kind, optional
from headrace.plan.nodes import (
    Aggregate,
    AggregateCall,
    Explode,
    Expression,
    Filter,
    InnerJoin,
    Node,
    Plan,
    Project,
    Relation,
    UnionAll,
)
from headrace.plan.pruning import prune
from headrace.plan.spelling import NoRule, Speller

# What has no rule, in the words of someone who wrote the query.
_OPERATORS = {
    "Window": "window function",
    "GlobalLimit": "LIMIT",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Tail": "LIMIT",
    "Intersect": "INTERSECT",
    "Except": "EXCEPT",
    "Expand": "GROUPING SETS, ROLLUP, CUBE or UNPIVOT",
    "LocalRelation": "list of values (VALUES)",
    "ResolvedInlineTable": "list of values (VALUES)",
    "Range": "range()",
    "OneRowRelation": "SELECT without a table",
    "LateralJoin": "LATERAL subquery",
    "UnionLoop": "WITH RECURSIVE",
    "WithCTE": "WITH RECURSIVE",
    "Pivot": "PIVOT",
    "AsOfJoin": "as-of join",
    "ScriptTransformation": "TRANSFORM … USING",
}
_FUNCTIONS: dict[str, Literal["count", "sum", "avg", "min", "max"]] = {
    "Count": "count",
    "CountIf": "count",
    "Sum": "sum",
    "Average": "avg",
    "Min": "min",
    "Max": "max",
    "BoolAnd": "min",  # false < true
    "BoolOr": "max",
}
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
            join = str(plan.joinType().sql())
            if join not in ("INNER", "CROSS"):
                raise NoRule(f"{join.lower()} join")
        elif name == "Union":
            self.speller.note(items(plan.output()))
        elif name != "Filter":
            raise NoRule(_OPERATORS.get(name, f"operator {name}"))
        children = [seen.plan.child()] if name == "Aggregate" else items(plan.children())
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
            case "LogicalRelation" | "LocalRelation":
                return self._relation(seen.plan)
            case "Project":
                return self._project(self.build(seen.children[0]), items(seen.plan.projectList()))
            case "Filter":
                return Filter(child=self.build(seen.children[0]), condition=self.speller.text(seen.plan.condition()))
            case "Join":
                return self._join(seen)
            case "Aggregate":
                return self._aggregate(seen)
            case "Union":
                return self._union(seen)
            case "Generate":
                return self._generate(seen)
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

    def _join(self, seen: _Seen) -> InnerJoin:
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
                rest.append(f"({self.speller.text(conjunct)})")
            else:
                (equalities if name == "EqualTo" else null_safe).append(
                    (self.speller.text(pair[0]), self.speller.text(pair[1]))
                )
        return InnerJoin(
            left=left,
            right=right,
            equalities=tuple(equalities),
            null_safe_equalities=tuple(null_safe),
            condition=" AND ".join(rest) or None,
        )

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
            if re.search(r"\b(MAP<|VARIANT\b|VOID\b)", key.type):
                raise NoRule(f"GROUP BY or DISTINCT on a column of type {key.type.lower()}")
            keys[key.name] = key  # GROUP BY x, x is GROUP BY x
        calls = tuple(self._call(call) for call in seen.calls)
        if not keys and not calls:
            raise NoRule("aggregation without GROUP BY and without an aggregate function")
        node = Aggregate(child=self.build(seen.children[0]), keys=tuple(keys.values()), calls=calls)
        results = self._project(node, seen.results)
        as_is = [expression.name == expression.text for expression in results.expressions]
        return node if all(as_is) and results.output == node.output else results

    def _call(self, call: Any) -> AggregateCall:
        function = call.aggregateFunction()
        name, spelled = kind(function), str(function.prettyName())
        if name not in _FUNCTIONS or spelled.startswith("try_"):
            raise NoRule(f"aggregate function {spelled}")
        if call.isDistinct() and _FUNCTIONS[name] not in ("min", "max"):
            raise NoRule(f"{spelled}(DISTINCT …)")
        arguments = items(function.children())
        conditions = [] if call.filter().isEmpty() else [self.speller.text(call.filter().get())]
        argument: Any = arguments[0] if len(arguments) == 1 else None
        if name == "CountIf":
            conditions.append(self.speller.text(argument))
            argument = None
        elif name == "Count" and (argument is None or kind(argument) == "Literal"):
            # count(a, b) counts the rows where neither is NULL; count(1) is count(*).
            conditions += [
                f"{self.speller.text(each)} IS NOT NULL" for each in arguments if len(arguments) > 1 or each.nullable()
            ]
            argument = None
        column = self.speller.column(call.resultAttribute())
        text = None if argument is None else self.speller.text(argument)
        condition = " AND ".join(f"({each})" for each in conditions) or None
        self.speller.call_checks.append((f"{_FUNCTIONS[name]}({text or '*'})", column.type))
        return AggregateCall(
            name=column.name,
            function=_FUNCTIONS[name],
            argument=text,
            argument_type=None if argument is None else str(argument.dataType().sql()),
            type=column.type,
            filter=conditions[0] if len(conditions) == 1 else condition,
        )

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


def table_name(relation: Any) -> str | None:
    """db.table of a leaf that is a table of the catalog."""
    table = optional(relation.catalogTable())
    if table is None:
        return None
    identifier = table.identifier()
    return f"{identifier.database().get()}.{identifier.table()}".lower()
