"""What a model says when it is incremental, told while it is not.

A full load compiles the other branch of `is_incremental()`, and needs to know which table streams the runs after it
will read: those of this target, in the branches that its variables choose. So the model is rendered once more, as if
its table were there. Nothing is run for that: what a query would have answered is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from dbt_common.exceptions import DbtBaseException
from jinja2.exceptions import TemplateError

_ABSENT = object()
_ASKS = re.compile(r"\b(is_incremental|execute|this)\b")
"""What a query may ask to know whether its table is there."""


class Unknown:
    """The answer of a query that was not asked: whatever is taken from it is unknown, too."""

    def __getattr__(self, name: str) -> Unknown:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: Any) -> Unknown:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Unknown:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __str__(self) -> str:
        return "null"

    def _is_so(self, other: Any) -> bool:
        return False

    __lt__ = __le__ = __gt__ = __ge__ = _is_so


def incremental_code(context: MutableMapping[str, Any], model: Mapping[str, Any]) -> str | None:
    """The query of the model as later runs compile it, in the context of its materialization; None where it cannot be
    told, because its Jinja fails over what is not known."""
    rendered = _rendered(context, model, incremental=True)
    return None if rendered is None else "\n".join([rendered, *_ephemeral_ones(rendered, model)])


def is_compiled_alike(context: MutableMapping[str, Any], model: Mapping[str, Any]) -> bool:
    """Whether it is certain that the first load of a model and later runs have the same query."""
    if model.get("language") != "sql" or _ASKS.search(str(model.get("raw_code") or "")):
        return False
    later = _rendered(context, model, incremental=True)
    return later is not None and later == _rendered(context, model, incremental=False)


def _rendered(context: MutableMapping[str, Any], model: Mapping[str, Any], *, incremental: bool) -> str | None:
    raw_code = str(model.get("raw_code") or "")
    asked = {"is_incremental": lambda: incremental, "execute": False, "run_query": Unknown(), "load_result": Unknown()}
    with _replaced(context, **asked):
        try:
            return str(context["render"](raw_code))
        except (DbtBaseException, TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError):
            return None


def _ephemeral_ones(rendered: str, model: Mapping[str, Any]) -> list[str]:
    """The texts of ephemeral models that it reads, also through each other: dbt puts them before the query when it
    compiles it, each behind those that it reads itself."""
    found: list[str] = []
    for cte in reversed(model.get("extra_ctes") or ()):
        sql = str(cte.get("sql") or "").strip()
        name = re.escape(sql.split(" as (", 1)[0])
        if name and any(re.search(rf"{name}\b", text) for text in (rendered, *found)):
            found.append(sql)
    return found


@contextmanager
def _replaced(context: MutableMapping[str, Any], **values: Any) -> Iterator[None]:
    """Macros see it, too: they look names up when they are called."""
    before = {key: context.get(key, _ABSENT) for key in values}
    context.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is _ABSENT:
                del context[key]
            else:
                context[key] = value
