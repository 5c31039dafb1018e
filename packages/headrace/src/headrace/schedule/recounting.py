"""What RESUME and a refresh by hand do to how far a schedule has come: failures are counted anew."""

from __future__ import annotations

from datetime import timedelta

from headrace.catalog.records import Mark

_JUST_BEFORE = timedelta(microseconds=1)


def resumed(mark: Mark, *, at_once: bool) -> Mark:
    """As if it had never failed, but for the last error: until it has succeeded, nobody says that all is well. A tick
    that failed is due again where it is to be tried `at_once`."""
    tried = mark.state == "FAILED" and (mark.failures > 0 or mark.held_up)
    tick = mark.tick - _JUST_BEFORE if at_once and tried else mark.tick
    return mark.model_copy(update={"failures": 0, "held_up": False, "tick": tick})


def refreshed(mark: Mark) -> Mark:
    """It works: somebody has refreshed it."""
    told = {"error": None, "error_code": None, "skipped_for": None}
    return mark.model_copy(update={"failures": 0, "held_up": False, **told})
