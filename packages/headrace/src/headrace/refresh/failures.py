"""What a refresh that failed tells: of its own making, of the data, or of what it runs on."""

from __future__ import annotations

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from headrace.errors import EnvironmentFault, HeadraceError, RefreshFailed, RefreshHeldUp
from headrace.ivm.layout import DAMAGED
from headrace.storage.errors import is_of_surroundings, short_message
from headrace.storage.spark import java_process_has_ended

JAVA_ENDED = "Spark's Java process ended while this ran."


def reason_of(error: BaseException) -> str:
    """What the history says of a refresh that failed with this error."""
    if isinstance(error, HeadraceError):
        return error.message
    return JAVA_ENDED if is_java_s_end(error) else short_message(error)


def is_of_the_data(error: BaseException) -> bool:
    """Whether values are what an expression cannot be computed for: a division by zero, say, or an error that the query
    raises itself."""
    if not isinstance(error, PySparkException):
        return False
    raised = error.getCondition() == "USER_RAISED_EXCEPTION" and DAMAGED not in str(error)
    return raised or (error.getSqlState() or "").startswith("22")


def is_java_s_end(error: BaseException) -> bool:
    # Whoever calls a Java process that is gone hears of sockets only.
    return isinstance(error, (Py4JNetworkError, ConnectionError)) or java_process_has_ended()


def failure(error: BaseException, message: str, hint: str | None) -> RefreshFailed:
    """What a refresh fails with for this reason: what no table is to blame for is told from what one may be."""
    ended = error.spark_ended if isinstance(error, EnvironmentFault) else is_java_s_end(error)
    if not (ended or is_of_surroundings(error)):
        return RefreshFailed(message, hint=hint)
    held_up = RefreshHeldUp(message, hint=hint)
    held_up.spark_ended = ended
    return held_up
