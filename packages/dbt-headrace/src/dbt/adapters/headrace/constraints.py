"""The constraints of a contract as table properties of Delta's."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from dbt_common.contracts.constraints import ColumnLevelConstraint, ConstraintType, ModelLevelConstraint

from dbt.adapters.headrace.column import quote

Asked = tuple[str | None, str, str]
"""The name that a constraint was given, or else one of its kind, and its expression."""


def constraints_of_column(name: str, parsed: ColumnLevelConstraint) -> list[Asked]:
    """Those that Delta enforces."""
    if parsed.type == ConstraintType.not_null:
        return [(parsed.name, f"{name}_not_null", f"{quote(name)} IS NOT NULL")]
    if parsed.type == ConstraintType.check and parsed.expression:
        return [(parsed.name, f"{name}_check", parsed.expression)]
    return []


def constraints_of_model(parsed: ModelLevelConstraint) -> list[Asked]:
    if parsed.type == ConstraintType.not_null:
        return [(None, f"{name}_not_null", f"{quote(name)} IS NOT NULL") for name in parsed.columns]
    if parsed.type == ConstraintType.check and parsed.expression:
        return [(parsed.name, "check", parsed.expression)]
    return []


def named_constraints(asked: Iterable[Asked]) -> dict[str, str]:
    """As properties: each has the name that it was given, or one of its kind that no other has.

    >>> [*named_constraints([(None, "check", "a"), (None, "check", "b"), ("check_2", "check", "c")])]
    ['delta.constraints.check_2', 'delta.constraints.check', 'delta.constraints.check_3']
    """
    found: dict[str, str] = {}
    for name, kind, expression in sorted(asked, key=lambda each: each[0] is None):
        plain = f"delta.constraints.{_plain(name or kind)}"
        keys = itertools.chain([plain], (f"{plain}_{number}" for number in itertools.count(2)))
        found[next(key for key in keys if key not in found)] = expression
    return found


def _plain(text: str) -> str:
    """
    >>> _plain("Price > 0?")
    'price___0_'
    """
    return "".join(letter if letter.isalnum() else "_" for letter in text.lower())
