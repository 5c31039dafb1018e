"""What a client may set on the writer of a recorded DataFrame: nothing that names a place, or another format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.errors import NotAllowed, UserError
from headrace.recording import allowed
from headrace.recording.values import WRITTEN_BY, bad_plan

Setting = tuple[str, tuple[Any, ...], Mapping[str, Any]]
"""A method of PySpark's DataFrameWriter, and what it is called with."""


def checked(guard: Callable[[str], None], options: Mapping[Any, Any], calls: Sequence[Any]) -> tuple[Setting, ...]:
    """The settings of a writer, each of them looked at. `guard` refuses dangerous SQL."""
    _check_options(guard, options)
    settings: list[Setting] = []
    for call in calls:
        if not isinstance(call, list) or len(call) != 3:
            raise bad_plan("a setting of a writer has a method, arguments and names")
        method, arguments, named = call
        if not (isinstance(method, str) and isinstance(arguments, list) and isinstance(named, dict)):
            raise bad_plan("a setting of a writer has a method, arguments and names")
        if method not in allowed.WRITER_SETTINGS:
            raise NotAllowed(
                f"A writer has no setting {method[:50]!r} in a plan.",
                hint=WRITTEN_BY,
            )
        _check_setting(guard, method, arguments, named)
        settings.append((method, tuple(arguments), named))
    return tuple(settings)


def _check_setting(
    guard: Callable[[str], None], method: str, arguments: Sequence[Any], named: Mapping[Any, Any]
) -> None:
    if not all(isinstance(key, str) for key in named):
        raise bad_plan("the names of a writer's settings are texts")
    if method == "options":
        _check_options(guard, named)
    elif method == "option":
        if named or len(arguments) != 2:
            raise UserError("option takes a name and a value.", hint='Such as option("mergeSchema", "true").')
        _check_options(guard, {arguments[0] if isinstance(arguments[0], str) else "": arguments[1]})
    elif method == "format" and [str(each).lower() for each in arguments] != ["delta"]:
        raise NotAllowed("A server writes Delta tables only.", hint="Leave format out.")
    if (named if method != "options" else arguments) or not all(_is_name(each) for each in arguments):
        raise UserError(f"{method} cannot be called like this.", hint="PySpark's documentation tells what it takes.")


def _is_name(value: Any) -> bool:
    return isinstance(value, (str, int, float)) or (
        isinstance(value, list) and all(isinstance(each, str) for each in value)
    )


def _check_options(guard: Callable[[str], None], options: Mapping[Any, Any]) -> None:
    for key, value in options.items():
        if not isinstance(key, str) or not isinstance(value, (str, int, float, bool)):
            raise bad_plan("an option has a name and a plain value")
        if key.lower() not in allowed.WRITER_OPTIONS:
            raise NotAllowed(
                f"The option {key[:50]} cannot be given over a URL.",
                hint=f"These can: {', '.join(sorted(allowed.WRITER_OPTIONS))}.",
            )
        if key.lower() == "replacewhere":
            guard(f"SELECT {value}")
