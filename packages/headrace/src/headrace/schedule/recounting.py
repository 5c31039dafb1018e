"""What RESUME and a refresh by hand do to how far a schedule has come: failures are counted anew."""

from __future__ import annotations

from datetime import timedelta

from headrace.catalog.records import Mark

_JUST_BEFORE = timedelta(microseconds=1)


def resumed(mark: Mark, *, at_once: bool) -> Mark:
    """As if it had never failed, but for the last error: until it has succeeded, nobody says that all is well. A tick
    that failed is due again where it is to be tried `at_once`."""
    tick = mark.tick - _JUST_BEFORE if at_once and mark.state == "FAILED" and mark.failures else mark.tick
    return mark.model_copy(update={"failures": 0, "tick": tick})


def refreshed(mark: Mark) -> Mark:
    """It works: somebody has refreshed it."""
    return mark.model_copy(update={"failures": 0, "error": None, "error_code": None, "skipped_for": None})
