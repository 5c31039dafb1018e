"""Columns with names of their own, and expressions as Spark SQL text over those names.

At the end every text is parsed again, in one go, and must come back as the very expression it was written from: what
does not, has no incremental rule, never a wrong answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pyspark.errors import PySparkException

from headrace.plan.jvm import CATALYST, Jvm, items, kind, short_message
from headrace.plan.nodes import Column

# What has no rule, in the words of someone who wrote the query.
_EXPRESSIONS = {
    "EXISTS_SUBQUERY": "EXISTS subquery",
    "IN_SUBQUERY": "IN subquery",
    "LIST_SUBQUERY": "IN subquery",
    "SCALAR_SUBQUERY": "scalar subquery",
    "OUTER_REFERENCE": "correlated subquery",
    "PLAN_EXPRESSION": "subquery in an expression",
    "SCALA_UDF": "user-defined function",
    "WINDOW_EXPRESSION": "window function",
}

# An expression without any of these is written by Catalyst as Spark SQL.
_NOT_AS_SQL = ("RUNTIME_REPLACEABLE", "LAMBDA_FUNCTION", "CREATE_NAMED_STRUCT")
_NULL_TREATMENT = ("First", "Last", "AnyValue", "NthValue", "Lag", "Lead")
"""Whether they ignore NULLs, Catalyst leaves out of their text."""
_QUOTE = "'"
_SHOWN = 200
"""Characters of an expression in a reason."""
_INTERNAL = ("precisetimestampconversion(", "knownnullable(", "CharVarcharCodegenUtils.readSidePadding(")
_NO_FUNCTIONS = ("extractansiintervaldays(", "namedlambdavariable(")


class NoRule(Exception):
    """A part of the query that has no incremental rule; the message names it."""


def shown(text: str) -> str:
    """An expression's text, as much of it as a reason has room for.

    >>> shown("upper(s_1)"), len(shown("s_1 + " * 1000 + "1"))
    ('upper(s_1)', 200)
    """
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


class Speller:
    """First `note` every column, then `name_columns`, then ask for texts, and `check_texts` last."""

    def __init__(self, jvm: Jvm) -> None:
        self.jvm = jvm
        self.attributes: dict[int, Any] = {}
        self.columns: dict[int, Column] = {}
        self.renaming: Any = None
        self.renamed: list[Any] = []
        self.rename: Any = jvm.object(f"{CATALYST}.optimizer.CollapseProject")
        self.simplify_casts: Any = jvm.object(f"{CATALYST}.optimizer.SimplifyCasts")
        self.checks: list[tuple[str, Any]] = []
        self.call_checks: list[tuple[str, str]] = []
        self.window_checks: list[tuple[str, Any]] = []
        self.aggregate_checks: list[tuple[str, Any]] = []
        self.generator_checks: list[tuple[str, Any, list[str]]] = []

    def note(self, attributes: Iterable[Any]) -> None:
        """Give each column that is new a name of its own."""
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

    def window(self, expression: Any) -> str:
        """Spark SQL for a window function with its OVER (…)."""
        text = self.text(expression, check=False, allowed="WINDOW_EXPRESSION")
        function = expression.windowFunction()
        function = function.aggregateFunction() if kind(function) == "AggregateExpression" else function
        if kind(function) in _NULL_TREATMENT and function.ignoreNulls():
            before, over, after = text.rpartition(" OVER (")
            text = f"{before} IGNORE NULLS{over}{after}"
        self.window_checks.append((text, expression))
        return text

    def aggregate(self, call: Any) -> str:
        """Spark SQL for a whole aggregate call, with DISTINCT and FILTER."""
        text = self.text(call, check=False)
        function = call.aggregateFunction()
        if kind(function) in _NULL_TREATMENT and function.ignoreNulls():
            text = f"{text} IGNORE NULLS"
        self.aggregate_checks.append((text, call))
        return text

    def text(self, expression: Any, *, check: bool = True, allowed: str | None = None) -> str:
        """Spark SQL for an expression, over our column names."""
        gap = self.jvm.contains(expression, *(name for name in _EXPRESSIONS if name != allowed))
        if gap is not None:
            raise NoRule(_EXPRESSIONS[gap])
        expression = self._written_out(expression)
        text = str(self._spelled(self.rename.replaceAlias(expression, self.renaming)).sql())
        if check:
            self.checks.append((text, expression))
        return text

    def _written_out(self, expression: Any) -> Any:
        """The expression without the internals of window(time, …) and of columns of type CHAR(n), but with functions
        that have names."""
        if not any(name in str(expression.sql()) for name in _INTERNAL):
            return expression
        children = [self._written_out(child) for child in items(expression.children())]
        functions = self.jvm.catalyst.expressions
        if kind(expression) == "KnownNullable":
            return children[0]
        if kind(expression) == "PreciseTimestampConversion":
            to_time = str(expression.dataType().sql()).startswith("TIMESTAMP")
            return functions.MicrosToTimestamp(children[0]) if to_time else functions.UnixMicros(children[0])
        if kind(expression) == "StaticInvoke" and str(expression.functionName()) == "readSidePadding":
            return self._padded(*children)
        return expression.withNewChildren(self.jvm.seq(children)) if children else expression

    def _padded(self, value: Any, length: Any) -> Any:
        """A CHAR(n) with its spaces. Nothing is cut off from one that is longer, as rpad alone would do."""
        functions = self.jvm.catalyst.expressions
        space = functions.Literal.create(" ", self.jvm.object("org.apache.spark.sql.types.StringType"))
        branch = self.jvm.root.scala.Tuple2(
            functions.LessThan(functions.Length(value), length), functions.StringRPad(value, length, space)
        )
        return functions.CaseWhen(self.jvm.seq([branch]), self.jvm.root.scala.Some(value))

    def _spelled(self, expression: Any) -> Any:
        """The expression with other text in the places that Catalyst itself would not write as Spark SQL."""
        plain = str(expression.sql())
        if self.jvm.contains(expression, *_NOT_AS_SQL) is None and not any(name in plain for name in _NO_FUNCTIONS):
            return expression
        name = kind(expression)
        if name == "NamedLambdaVariable":
            return self._as_text(_lambda_name(expression), expression)
        if expression.containsPattern(self.jvm.pattern("RUNTIME_REPLACEABLE")) and _is_rewritten(self.jvm, expression):
            # nvl, BETWEEN, extract …: their children are what they are rewritten to, their parameters what was written.
            renamed = [self.rename.replaceAlias(each, self.renaming) for each in items(expression.parameters())]
            texts = [str(self._spelled(each).sql()) for each in renamed]
            if name == "Extract":  # its field is a word, not a string
                return self._as_text(f"extract({texts[0].strip(_QUOTE)} FROM {texts[1]})", expression)
            return self._as_text(f"({expression.makeSQLString(self.jvm.seq(texts))})", expression)
        children = [self._spelled(child) for child in items(expression.children())]
        if name == "LambdaFunction":
            names = [_lambda_name(argument) for argument in items(expression.arguments())]
            arguments = names[0] if len(names) == 1 else f"({', '.join(names)})"
            return self._as_text(f"{arguments} -> {children[0].sql()}", expression)
        if name == "CreateNamedStruct":  # struct(x AS a) would lose the name
            return self._as_text(f"named_struct({', '.join(str(child.sql()) for child in children)})", expression)
        if name == "ExtractANSIIntervalDays":  # from `date - INTERVAL '90' DAY`
            return self._as_text(f"extract(DAY FROM {children[0].sql()})", expression)
        return expression.withNewChildren(self.jvm.seq(children)) if children else expression

    def _as_text(self, text: str, expression: Any) -> Any:
        return self.jvm.catalyst.expressions.PrettyAttribute(text, expression.dataType())

    def check_texts(self) -> None:
        """Parse every text again; each must be the expression it came from, over the very same columns."""
        relation = self.jvm.catalyst.plans.logical.LocalRelation(
            self.jvm.seq(self.renamed), self.jvm.seq(()), False, self.jvm.object("scala.None")
        )
        try:
            self._check(relation, self.checks)
        except (PySparkException, NoRule):
            for text, expression in self.checks:  # again one at a time, to name the one
                self._check_alone(relation, text, expression)
            raise
        if self.call_checks:
            outputs = items(self._selected(relation, [text for text, _ in self.call_checks]).output())
            for (text, expected), attribute in zip(self.call_checks, outputs, strict=True):
                if attribute.dataType().sql() != expected:
                    raise NoRule(f"aggregate {shown(text)}")
        for text, expression in self.window_checks:
            self._check_one(relation, text, expression, "Window", "windowExpressions")
        for text, call in self.aggregate_checks:
            self._check_one(relation, text, call, "Aggregate", "aggregateExpressions")
        for text, generator, types in self.generator_checks:
            self._check_generator(relation, text, generator, types)

    def _selected(self, relation: Any, texts: list[str]) -> Any:
        columns = ", ".join(f"({text}) AS __c{index}" for index, text in enumerate(texts))
        parsed = self.jvm.parse(f"SELECT {columns} FROM __x")
        analyzed = self.jvm.analyze(parsed.withNewChildren(self.jvm.seq([relation])))
        # The analyser puts casts to the type that is there already around some sums; lowering took ours away.
        return self.simplify_casts.apply(analyzed)

    def _check(self, relation: Any, checks: list[tuple[str, Any]]) -> None:
        if not checks:
            return
        selected = items(self._selected(relation, [text for text, _ in checks]).projectList())
        for (text, expression), found in zip(checks, selected, strict=True):
            if not self._same(text, found.child(), expression):
                raise NoRule(f"expression {shown(text)}, which Spark reads back differently")

    def _same(self, text: str, found: Any, expression: Any) -> bool:
        if found.semanticEquals(expression):
            return True
        if "NULL" not in text:
            return False
        return bool(self._with_typed_nulls(found).semanticEquals(self._with_typed_nulls(expression)))

    def _with_typed_nulls(self, expression: Any) -> Any:
        """A NULL of a type is a literal in a plan and a cast in SQL: here it is always the literal."""
        children = items(expression.children())
        if kind(expression) == "Cast" and kind(children[0]) == "Literal" and children[0].value() is None:
            return self.jvm.catalyst.expressions.Literal(None, expression.dataType())
        replaced = [self._with_typed_nulls(child) for child in children]
        return expression.withNewChildren(self.jvm.seq(replaced)) if children else expression

    def _check_alone(self, relation: Any, text: str, expression: Any) -> None:
        try:
            self._check(relation, [(text, expression)])
        except PySparkException as error:
            raise NoRule(
                f"expression {shown(text)}, which Spark cannot read back ({shown(short_message(error))})"
            ) from None

    def _check_one(self, relation: Any, text: str, expression: Any, operator: str, expressions: str) -> None:
        """The text, alone in a SELECT, must become this operator with this one expression in it."""
        try:
            plan = self._selected(relation, [text])
        except PySparkException as error:
            raise NoRule(f"{shown(text)}, which Spark cannot read back ({shown(short_message(error))})") from None
        while kind(plan) != operator and plan.children().size() == 1:
            plan = items(plan.children())[0]
        found = items(getattr(plan, expressions)()) if kind(plan) == operator else []
        if len(found) != 1 or not found[0].child().semanticEquals(expression):
            raise NoRule(f"{shown(text)}, which Spark reads back differently")

    def _check_generator(self, relation: Any, text: str, generator: Any, types: list[str]) -> None:
        try:
            parsed = self.jvm.parse(f"SELECT {text} FROM __x")
            plan = self.jvm.analyze(parsed.withNewChildren(self.jvm.seq([relation])))
        except PySparkException as error:
            raise NoRule(f"{shown(text)}, which Spark cannot read back ({shown(short_message(error))})") from None
        generate = items(plan.children())[0]
        same = kind(generate) == "Generate" and generate.generator().semanticEquals(generator)
        if not same or [str(attribute.dataType().sql()) for attribute in items(plan.output())] != types:
            raise NoRule(f"{shown(text)}, which Spark reads back differently")


def _is_rewritten(jvm: Jvm, expression: Any) -> bool:
    rewritten = jvm.root.java.lang.Class.forName(f"{CATALYST}.expressions.InheritAnalysisRules")
    return bool(rewritten.isInstance(expression))


def _lambda_name(variable: Any) -> str:
    return f"{re.sub(r'[^A-Za-z0-9_]', '_', str(variable.name()))}_{variable.exprId().id()}"
