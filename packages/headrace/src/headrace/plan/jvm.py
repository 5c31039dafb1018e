"""The few ways in which the modules of this package talk to Spark's JVM, and Spark's errors in our words.

Everything that py4j hands over is typed `Any`. `catalyst.py` and the modules it is made of (`binding`, `lowering`,
`subqueries`, `reading`, `calls`, `constants`, `spelling`) use it when a dynamic table is created; streams and sessions,
to look at a statement's plan and to have a session of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import ParseException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import NotFound, Position, QueryFailed, SyntaxFault, UserError

CATALYST = "org.apache.spark.sql.catalyst"
_LONGEST = 5000
"""Of an error's message: a statement decides how long it is."""


class Jvm:
    """Spark's parser, analyser and Scala collections, through one session."""

    def __init__(self, spark: SparkSession) -> None:
        root: Any = spark._jvm
        self.root = root
        self.session: Any = spark._jsparkSession  # type: ignore[attr-defined,unused-ignore]
        self.state: Any = self.session.sessionState()
        self.catalyst: Any = root.org.apache.spark.sql.catalyst

    def parse(self, text: str) -> Any:
        """The unresolved plan of a statement."""
        with _active(self):
            return self.state.sqlParser().parsePlan(text)

    def analyze(self, plan: Any) -> Any:
        """The plan with every name and type resolved; commands must not come here, they would run."""
        return self.root.org.apache.spark.sql.classic.Dataset.ofRows(self.session, plan).queryExecution().analyzed()

    def object(self, name: str) -> Any:
        """A Scala object such as `org.apache.spark.….ColumnPruning`, by its class name."""
        return _scala_object(self.root, name)

    def pattern(self, name: str) -> Any:
        """One of Catalyst's tree patterns: a bit that tells whether a tree contains a kind of node."""
        return _tree_pattern(self.root, name)

    def contains(self, tree: Any, *patterns: str) -> str | None:
        """The first of these patterns that occurs in the tree."""
        return next((name for name in patterns if tree.containsPattern(self.pattern(name))), None)

    def literals(self, values: Any, types: Sequence[Any]) -> list[str]:
        """SQL texts of a Scala sequence of internal values. The values stay in Java: from here, a small BIGINT would go
        back as an Integer, and a FLOAT as a Double."""
        given = self.root.scala.jdk.javaapi.CollectionConverters.asJava(values)
        (make,) = _class(self.root, f"{CATALYST}.expressions.Literal").getConstructors()
        texts = []
        for place, type_of in enumerate(types):
            arguments = self.root.java.util.ArrayList(given.subList(place, place + 1))
            arguments.add(type_of)
            texts.append(str(make.newInstance(arguments.toArray()).sql()))
        return texts

    def function_identifier(self, name: str, place: str = "builtin") -> Any:
        """How the session's registries know a function that is built in (or, in `session`, made there)."""
        some = self.root.scala.Option.apply
        return self.catalyst.FunctionIdentifier(name, some(place), some("system"))

    def seq(self, values: Sequence[Any]) -> Any:
        """A Scala sequence."""
        array = self.root.java.util.ArrayList()
        for value in values:
            array.add(value)
        return self.root.PythonUtils.toSeq(array)


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Have Spark read texts by the settings of this session: it goes by those of the thread's active one, such as for
    casts that give NULL or an error, and for the zone of a timestamp that is written out."""
    with _active(Jvm(spark)):
        yield


@contextmanager
def _active(jvm: Jvm) -> Iterator[None]:
    sessions = jvm.object("org.apache.spark.sql.classic.SparkSession")
    before = optional(sessions.getActiveSession())
    sessions.setActiveSession(jvm.session)
    try:
        yield
    finally:
        with suppress(Py4JError, OSError):  # Where Java has ended, that is told already.
            if before is None:
                sessions.clearActiveSession()
            else:
                sessions.setActiveSession(before)


def rows_of(spark: SparkSession, analysed: Any) -> DataFrame:
    """A resolved plan in a session, which need not be the one that resolved it; a command runs now."""
    jvm = Jvm(spark)
    return DataFrame(jvm.root.org.apache.spark.sql.classic.Dataset.ofRows(jvm.session, analysed), spark)


def cloned(spark: SparkSession) -> SparkSession:
    """Another session with the same settings, current schema, temporary views and functions as this one has now."""
    session: Any = spark._jsparkSession  # type: ignore[attr-defined,unused-ignore]
    return SparkSession(spark.sparkContext, session.cloneSession())


@lru_cache(maxsize=256)
def _tree_pattern(root: Any, name: str) -> Any:
    return getattr(_scala_object(root, f"{CATALYST}.trees.TreePattern"), name)()


@lru_cache(maxsize=256)
def _scala_object(root: Any, name: str) -> Any:
    return _class(root, f"{name}$").getField("MODULE$").get(None)


@lru_cache(maxsize=256)
def _class(root: Any, name: str) -> Any:
    loader = root.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    return root.java.lang.Class.forName(name, True, loader)


def items(seq: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [seq.apply(index) for index in range(seq.size())]


def optional(option: Any) -> Any:
    """What a Scala Option holds, or None."""
    return option.get() if option.isDefined() else None


def kind(tree: Any) -> str:
    """The name of a node's or expression's class."""
    return str(tree.getClass().getSimpleName())


def position_at(text: str, index: int) -> Position:
    """Line and column of a character; Catalyst's offsets count code points, as Python's strings do."""
    before = text[:index]
    return Position(line=before.count("\n") + 1, column=index - (before.rfind("\n") + 1) + 1)


def span(tree: Any) -> tuple[int, int] | None:
    """First and last character of a node in the text that it was parsed from."""
    origin = tree.origin()
    start, stop = optional(origin.startIndex()), optional(origin.stopIndex())
    return None if start is None or stop is None else (int(start), int(stop))


@contextmanager
def spark_errors(place: Callable[[Position], Position] = lambda position: position) -> Iterator[None]:
    """Turn Spark's refusals into ours. `place` maps a position in the text Spark saw to the user's text."""
    # PySpark logs every captured error with its whole stack trace; ours says all that the user needs.
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    except PySparkException as error:
        raise _translated(error, place) from None
    finally:
        logger.disabled = was_disabled


def spark_message(error: PySparkException) -> str:
    """Spark's message. PySpark looks it up anew by its error class, and does not know the classes that Delta has: then
    it is the one that the error itself carries."""
    try:
        text = error.getMessage()
    except (Py4JError, PySparkException):
        text = None
    origin: Any = getattr(error, "_origin", None)
    if not text and origin is not None:
        text = origin.getMessage()
    text = str(text or getattr(error, "_desc", None) or type(error).__name__)
    return text.replace("`spark_catalog`.", "").replace("spark_catalog.", "")


def short_message(error: PySparkException) -> str:
    """Spark's message without error class, SQLSTATE, position, query and plan."""
    text = spark_message(error)[:_LONGEST].strip()
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text)
    text = re.split(r"\s*SQLSTATE: |;?\s+line \d+ pos \d+|\n\s*\n|\n== SQL", text)[0]
    return text.strip()


def _translated(error: PySparkException, place: Callable[[Position], Position]) -> UserError:
    condition = error.getCondition() or "UNKNOWN"
    message, position = short_message(error), None
    origin: Any = getattr(error, "_origin", None)
    if origin is not None and hasattr(error, "_desc"):
        found = re.search(r"line (\d+),? pos(?:ition)? (\d+)", error._desc)
        if found:
            # "(line 1, position 18)" counts from 1, "line 1 pos 17" from 0.
            shift = 0 if "position" in found.group() else 1
            position = place(Position(int(found.group(1)), int(found.group(2)) + shift))
    if isinstance(error, ParseException):
        return SyntaxFault(message, position=position)
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        return NotFound(message.split("\n")[0], hint="SHOW TABLES lists what there is.", position=position)
    return QueryFailed(f"{message} [{condition}]", position=position)
