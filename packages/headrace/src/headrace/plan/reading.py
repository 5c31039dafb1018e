"""Read a lowered Catalyst plan into our algebra.

Two passes over the plan. The first notes every column, and gives each a name of its own; the second builds our nodes,
asking Spark for the text of each expression over those names. At the end every text is parsed again, in one go, and
must come back as the very expression it was written from: what does not, has no incremental rule, never a wrong answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark.errors import PySparkException

from headrace.plan.jvm import CATALYST, Jvm, items, kind, optional, short_message
from headrace.plan.nodes import (
    Aggregate,
    AggregateCall,
    Column,
    Explode,
    Expression,
    Filter,
    InnerJoin,
    Node,
    Plan,
    Project,
    Relation,
    UnionAll,
    walk,
)

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
_EXPRESSIONS = {
    "EXISTS_SUBQUERY": "EXISTS subquery",
    "IN_SUBQUERY": "IN subquery",
    "LIST_SUBQUERY": "IN subquery",
    "SCALAR_SUBQUERY": "scalar subquery",
    "OUTER_REFERENCE": "correlated subquery",
    "PLAN_EXPRESSION": "subquery in an expression",
    "CURRENT_LIKE": "current_date()",
    "PYTHON_UDF": "Python function",
    "SCALA_UDF": "user-defined function",
    "WINDOW_EXPRESSION": "window function",
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


class NoRule(Exception):
    """A part of the query that has no incremental rule; the message names it."""


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
    output = [reader.column(attribute) for attribute in items(lowered.output())]
    reader.name_columns()
    root = reader.build(seen)
    reader.check_texts()
    columns = tuple(zip(public, output, strict=True))
    return Plan(root=_prune(root, {column.name for column in output}), columns=columns)


class _Reader:
    def __init__(self, jvm: Jvm, tables: dict[str, int], leaves: dict[int, int]) -> None:
        self.jvm = jvm
        self.tables = tables
        self.leaves = leaves
        self.attributes: dict[int, Any] = {}
        self.columns: dict[int, Column] = {}
        self.renaming: Any = None
        self.renamed: list[Any] = []
        self.rename: Any = jvm.object(f"{CATALYST}.optimizer.CollapseProject")
        self.split: Any = jvm.object(f"{CATALYST}.optimizer.PushPredicateThroughJoin")
        self.checks: list[tuple[str, Any]] = []
        self.call_checks: list[tuple[str, str]] = []
        self.generator_checks: list[tuple[str, Any, list[str]]] = []

    # -- first pass: columns and their names ---------------------------------------------------------------------

    def survey(self, plan: Any) -> _Seen:
        """Note the columns of this node and of everything below it."""
        name = kind(plan)
        if name in _TRANSPARENT:
            return self.survey(items(plan.children())[0])
        seen = _Seen(plan, name, [])
        if name == "LogicalRelation" or (name == "LocalRelation" and self._dynamic_source(plan) is not None):
            self._note(items(plan.output()))
        elif name == "Project":
            self._note(expression.toAttribute() for expression in items(plan.projectList()))
        elif name == "Aggregate":
            self._survey_aggregate(seen)
        elif name == "Generate":
            self._note(items(plan.generatorOutput()))
        elif name == "Join":
            join = str(plan.joinType().sql())
            if join not in ("INNER", "CROSS"):
                raise NoRule(f"{join.lower()} join")
        elif name == "Union":
            self._note(items(plan.output()))
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
        self._note(group.toAttribute() for group in seen.groups)
        self._note(call.resultAttribute() for call in seen.calls)
        self._note(result.toAttribute() for result in seen.results)

    def _note(self, attributes: Iterable[Any]) -> None:
        for attribute in attributes:
            identity = int(attribute.exprId().id())
            if identity in self.attributes:
                continue
            type_text = str(attribute.dataType().sql())
            if "COLLATE" in type_text:
                raise NoRule("string with a collation")
            words = re.sub(r"[^A-Za-z0-9_]+", "_", str(attribute.name())).strip("_").lower()[:40]
            if not words or words[0].isdigit():
                words = f"c{words}"
            self.attributes[identity] = attribute
            self.columns[identity] = Column(name=f"{words}_{identity}", type=type_text)

    def column(self, attribute: Any) -> Column:
        return self.columns[int(attribute.exprId().id())]

    def name_columns(self) -> None:
        """Prepare the renaming of every column to its own name, done inside the JVM for whole expressions at once."""
        expressions = self.jvm.catalyst.expressions
        nothing, none = self.jvm.seq(()), self.jvm.object("scala.None")
        pairs = []
        for identity, attribute in self.attributes.items():
            name = self.columns[identity].name
            renamed = attribute.withName(name).withQualifier(nothing)
            alias = expressions.Alias(renamed, name, attribute.exprId(), nothing, none, nothing)
            self.renamed.append(renamed)
            pairs.append(self.jvm.root.scala.Tuple2(attribute, alias))
        self.renaming = self.jvm.object(f"{CATALYST}.expressions.AttributeMap").apply(self.jvm.seq(pairs))

    # -- second pass: nodes --------------------------------------------------------------------------------------

    def build(self, seen: _Seen) -> Node:
        """Our node for one of theirs."""
        match seen.kind:
            case "LogicalRelation" | "LocalRelation":
                return self._relation(seen.plan)
            case "Project":
                return self._project(self.build(seen.children[0]), items(seen.plan.projectList()))
            case "Filter":
                return Filter(child=self.build(seen.children[0]), condition=self.text(seen.plan.condition()))
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
        columns = tuple((str(attribute.name()), self.column(attribute)) for attribute in items(plan.output()))
        return Relation(source=source, columns=columns)

    def _named(self, expression: Any) -> Expression:
        column = self.column(expression)
        text = column.name if kind(expression) == "AttributeReference" else self.text(expression.child())
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
                rest.append(f"({self.text(conjunct)})")
            else:
                (equalities if name == "EqualTo" else null_safe).append((self.text(pair[0]), self.text(pair[1])))
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
        conditions = [] if call.filter().isEmpty() else [self.text(call.filter().get())]
        argument: Any = arguments[0] if len(arguments) == 1 else None
        if name == "CountIf":
            conditions.append(self.text(argument))
            argument = None
        elif name == "Count" and (argument is None or kind(argument) == "Literal"):
            # count(a, b) counts the rows where neither is NULL; count(1) is count(*).
            conditions += [
                f"{self.text(each)} IS NOT NULL" for each in arguments if len(arguments) > 1 or each.nullable()
            ]
            argument = None
        column = self.column(call.resultAttribute())
        text = None if argument is None else self.text(argument)
        condition = " AND ".join(f"({each})" for each in conditions) or None
        self.call_checks.append((f"{_FUNCTIONS[name]}({text or '*'})", column.type))
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
            node, wanted = self.build(child), [self.column(attribute) for attribute in items(child.plan.output())]
            if child.kind != "Project" and list(node.output) != wanted:
                passed = tuple(Expression(name=column.name, text=column.name, type=column.type) for column in wanted)
                node = Project(child=node, expressions=passed)
            inputs.append(node)
        output = tuple(self.column(attribute) for attribute in items(seen.plan.output()))
        return UnionAll(inputs=tuple(inputs), output=output)

    def _generate(self, seen: _Seen) -> Node:
        generator = seen.plan.generator()
        text = self.text(generator, check=False)
        name = str(generator.prettyName())
        if seen.plan.outer():
            if name not in _OUTER_FORMS or not text.startswith(f"{name}("):
                raise NoRule(f"LATERAL VIEW OUTER {name}")
            text = _OUTER_FORMS[name] + text[len(name) :]
        generated = tuple(self.column(attribute) for attribute in items(seen.plan.generatorOutput()))
        self.generator_checks.append((text, generator, [column.type for column in generated]))
        node = Explode(child=self.build(seen.children[0]), generator=text, generated=generated)
        # The input column that is exploded is seldom wanted above.
        wanted = [self.column(attribute) for attribute in items(seen.plan.output())]
        if list(node.output) == wanted:
            return node
        passed = tuple(Expression(name=column.name, text=column.name, type=column.type) for column in wanted)
        return Project(child=node, expressions=passed)

    # -- texts ---------------------------------------------------------------------------------------------------

    def text(self, expression: Any, *, check: bool = True) -> str:
        """Spark SQL for an expression, over our column names."""
        for pattern, reason in _EXPRESSIONS.items():
            if expression.containsPattern(self.jvm.pattern(pattern)):
                raise NoRule(reason)
        renamed = self.rename.replaceAlias(expression, self.renaming)
        if expression.containsPattern(self.jvm.pattern("LAMBDA_FUNCTION")):
            renamed = self._spelled_lambdas(renamed)
        text = str(renamed.sql())
        if check:
            self.checks.append((text, expression))
        return text

    def _spelled_lambdas(self, expression: Any) -> Any:
        """Catalyst does not write lambdas as SQL: put their text in their place."""
        name = kind(expression)
        if name == "NamedLambdaVariable":
            return self._as_text(f"{_lambda_name(expression)}", expression)
        children = [self._spelled_lambdas(child) for child in items(expression.children())]
        if name == "LambdaFunction":
            arguments = ", ".join(_lambda_name(argument) for argument in items(expression.arguments()))
            return self._as_text(f"({arguments}) -> {children[0].sql()}", expression)
        return expression.withNewChildren(self.jvm.seq(children)) if children else expression

    def _as_text(self, text: str, expression: Any) -> Any:
        return self.jvm.catalyst.expressions.PrettyAttribute(text, expression.dataType())

    def check_texts(self) -> None:
        """Parse every text again; each must be the expression it came from, over the very same columns."""
        relation = self.jvm.catalyst.plans.logical.LocalRelation(
            self.jvm.seq(self.renamed), self.jvm.seq(()), False, self.jvm.object("scala.None")
        )
        checks = list({text: (text, expression) for text, expression in self.checks}.values())
        try:
            self._check(relation, checks)
        except (PySparkException, NoRule):
            for each in checks:  # one at a time, to name the one
                try:
                    self._check(relation, [each])
                except PySparkException as error:
                    raise NoRule(
                        f"expression {each[0]}, which Spark cannot read back ({short_message(error)})"
                    ) from None
        if self.call_checks:
            outputs = items(self._selected(relation, [text for text, _ in self.call_checks]).output())
            for (text, expected), attribute in zip(self.call_checks, outputs, strict=True):
                if attribute.dataType().sql() != expected:
                    raise NoRule(f"aggregate {text}")
        for text, generator, types in self.generator_checks:
            self._check_generator(relation, text, generator, types)

    def _selected(self, relation: Any, texts: list[str]) -> Any:
        columns = ", ".join(f"({text}) AS __c{index}" for index, text in enumerate(texts))
        parsed = self.jvm.parse(f"SELECT {columns} FROM __x")
        return self.jvm.analyze(parsed.withNewChildren(self.jvm.seq([relation])))

    def _check(self, relation: Any, checks: list[tuple[str, Any]]) -> None:
        if not checks:
            return
        selected = items(self._selected(relation, [text for text, _ in checks]).projectList())
        for (text, expression), found in zip(checks, selected, strict=True):
            if not found.child().semanticEquals(expression):
                raise NoRule(f"expression {text}, which Spark reads back differently")

    def _check_generator(self, relation: Any, text: str, generator: Any, types: list[str]) -> None:
        try:
            parsed = self.jvm.parse(f"SELECT {text} FROM __x")
            plan = self.jvm.analyze(parsed.withNewChildren(self.jvm.seq([relation])))
        except PySparkException as error:
            raise NoRule(f"{text}, which Spark cannot read back ({short_message(error)})") from None
        generate = items(plan.children())[0]
        same = kind(generate) == "Generate" and generate.generator().semanticEquals(generator)
        if not same or [str(attribute.dataType().sql()) for attribute in items(plan.output())] != types:
            raise NoRule(f"{text}, which Spark reads back differently")


def table_name(relation: Any) -> str | None:
    """db.table of a leaf that is a table of the catalog."""
    table = optional(relation.catalogTable())
    if table is None:
        return None
    identifier = table.identifier()
    return f"{identifier.database().get()}.{identifier.table()}".lower()


def _lambda_name(variable: Any) -> str:
    return f"{re.sub(r'[^A-Za-z0-9_]', '_', str(variable.name()))}_{variable.exprId().id()}"


def _prune(root: Node, wanted: set[str]) -> Node:
    """Leave out the columns of source tables that nothing above names."""
    used = set(wanted)
    for node in walk(root):
        used.update(re.findall(r"\w+", " ".join(_texts(node))))
    return _pruned(root, used)


def _texts(node: Node) -> list[str]:
    match node:
        case Project():
            return [expression.text for expression in node.expressions]
        case Filter():
            return [node.condition]
        case InnerJoin():
            pairs = node.equalities + node.null_safe_equalities
            return [text for pair in pairs for text in pair] + [node.condition or ""]
        case Aggregate():
            calls = [text for call in node.calls for text in (call.argument, call.filter) if text is not None]
            return [key.text for key in node.keys] + calls
        case UnionAll():
            return [column.name for child in node.inputs for column in child.output]
        case Explode():
            return [node.generator]
        case _:
            return []


def _pruned(node: Node, used: set[str]) -> Node:
    match node:
        case Relation():
            kept = tuple(pair for pair in node.columns if pair[1].name in used)
            return Relation(source=node.source, columns=kept or node.columns[:1])
        case InnerJoin():
            return node.model_copy(update={"left": _pruned(node.left, used), "right": _pruned(node.right, used)})
        case UnionAll():
            return node.model_copy(update={"inputs": tuple(_pruned(child, used) for child in node.inputs)})
        case Project():
            child = _pruned(node.child, used)
            as_is = all(expression.name == expression.text for expression in node.expressions)
            return child if as_is and node.output == child.output else node.model_copy(update={"child": child})
        case _:
            return node.model_copy(update={"child": _pruned(node.child, used)})
