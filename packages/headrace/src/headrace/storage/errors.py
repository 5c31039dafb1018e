"""Spark's errors in one sentence."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.plan.jvm import spark_message

_CONTEXT = re.compile(r"\n?\s*== SQL.*", re.S)
_PLAN = re.compile(r";?\n'?[A-Z][A-Za-z]+ .*", re.S)


def short_message(error: BaseException) -> str:
    """The first sentence or two of an error: no stack trace, no plan, no copy of the statement."""
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = cause.getMessage() or cause.toString()
    elif isinstance(error, PySparkException):
        text = spark_message(error)
    else:
        text = str(error) or type(error).__name__
    text = _CONTEXT.sub("", text)
    text = _PLAN.sub("", text).split("\n\tat ")[0].strip()
    text = text or type(error).__name__
    return text if len(text) <= 600 else text[:597] + "…"
