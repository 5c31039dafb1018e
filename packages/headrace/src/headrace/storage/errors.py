"""Spark's errors in one sentence."""

from __future__ import annotations

import errno
import re

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from headrace import running
from headrace.errors import EnvironmentFault, HeadraceError
from headrace.plan.jvm import spark_message

_LONGEST = 5000
"""Of a message, before it is looked at any closer: a statement decides what is in it."""
_OF_ROWS = (PySparkException, Py4JJavaError, pa.ArrowException, ValueError, ArithmeticError)
_OF_TEXTS = (AnalysisException, ParseException)
_PLAIN = ("No space left on device", "Disk quota exceeded", "Too many open files")
"""What the system says when it has no more of something that all need."""
_NO_MORE = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""delta-rs marks what a message quotes, as for a terminal."""
_PLAN = re.compile(r";?\n'?[A-Z][A-Za-z]+ .*", re.S)


def short_message(error: BaseException) -> str:
    """The first sentence or two of an error: no stack trace, no plan, no copy of the statement. It may quote a value of
    a row, unless rows are hidden (`running.hiding`)."""
    text = _message(error)
    if isinstance(error, _OF_ROWS) and not isinstance(error, _OF_TEXTS) and running.hides_rows():
        condition = error.getCondition() if isinstance(error, PySparkException) else None
        return next((plain for plain in _PLAIN if plain in text), _untold(condition))
    text = text[:_LONGEST].split("== SQL")[0].rstrip()
    text = _PLAN.sub("", text).split("\n\tat ")[0].strip()
    text = text or type(error).__name__
    return text if len(text) <= 600 else text[:597] + "…"


def is_of_surroundings(error: BaseException) -> bool:
    """Whether whoever met this error is not to blame: the disk is full, say."""
    if isinstance(error, HeadraceError):
        return isinstance(error, EnvironmentFault)
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _NO_MORE
    return isinstance(error, (OSError, DeltaError, *_OF_ROWS)) and any(told in _message(error) for told in _PLAIN)


def _untold(condition: str | None) -> str:
    kind = f" [{condition}]" if condition else ""
    return f"The query failed{kind}. On which row is not told: not everybody who sees this may read its tables."


def _message(error: BaseException) -> str:
    return _COLOURS.sub("", _told(error))


def _told(error: BaseException) -> str:
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return str(cause.getMessage() or cause.toString())
    if isinstance(error, PySparkException):
        return spark_message(error)
    return str(error) or type(error).__name__
