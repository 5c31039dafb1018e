"""Partial aggregates: what is kept for each aggregate call, and how a change is folded in.

For a call, `columns` are the state columns; `whole` computes them from all rows of a group; `delta` computes their
change from weighted rows; `fold` combines both; `finish` gives the call's value. `retraction_unsafe` tells when the
group must be computed anew from its rows instead: a float sum after any removal, a minimum after the removal of a
value that is not above it.

    fold(whole(A), delta(Δ))  =  whole(A + Δ)

In `fold` texts, `o_x` is the stored state and `d_x` the change of it.
"""

from __future__ import annotations

import re

from headrace.ivm.changeset import WEIGHT
from headrace.ivm.ties import by_chance
from headrace.names import quote
from headrace.plan.nodes import AggregateCall, Column, Frozen

_INTEGRAL = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_FLOATING = {"float", "double"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)", re.I)

# Adding two decimals of precision p needs p + 1 digits. Beyond 38, Spark gives up scale, but never below 6: sums of
# wide arguments (their state has 10 digits more) with a larger scale are computed anew instead of folded.
_WIDEST_FOLDED_SUM = 27
_SCALE_ALWAYS_KEPT = 6
# avg divides; beyond this precision Spark's quotient would be rounded twice.
_WIDEST_FOLDED_AVERAGE = 16


class CallState(Frozen):
    call: AggregateCall
    columns: tuple[Column, ...]
    whole: tuple[str, ...]
    delta: tuple[str, ...]
    fold: tuple[str, ...]
    finish: str
    extra_delta: tuple[tuple[str, str], ...] = ()
    """Further columns of the change (name, aggregate text) that `unsafe` looks at."""
    unsafe: str | None = None
    """Condition over `o_`, `d_` and extra columns under which the group must be computed anew."""
    unsafe_only_after_removals: bool = True
    exact: bool = True
    """Whether a folded value is the one that a computation from all rows gives, to the last bit."""
    description: str = ""

    @property
    def finish_old(self) -> str:
        """`finish` over the old states."""
        names = {column.name for column in self.columns}
        return re.sub(r"\w+", lambda word: f"o_{word[0]}" if word[0] in names else word[0], self.finish)


def states_of(calls: tuple[AggregateCall, ...]) -> tuple[CallState, ...]:
    return tuple(state_of(call, f"__hr_s{position}") for position, call in enumerate(calls))


def state_of(call: AggregateCall, name: str) -> CallState:
    """The state of one call, stored in columns that start with `name`."""
    if call.text is not None:
        return _anew(call, name)
    if call.argument_type is not None:
        call = call.model_copy(update={"argument_type": call.argument_type.lower()})
    if call.function == "count":
        return _count(call, name)
    if call.function in ("min", "max"):
        return _extreme(call, name)
    if call.function == "sum" and _adds_exactly(call.argument_type or ""):
        return _sum(call, name)
    if call.function == "avg" and call.argument_type is not None:
        wide = _decimal_precision(call.argument_type) or 0
        if call.argument_type in _INTEGRAL or call.argument_type in _FLOATING or 0 < wide <= _WIDEST_FOLDED_AVERAGE:
            return _average(call, name)
    return _anew(call, name)


_OVERFLOWN = "raise_error('a sum has more digits than its type holds')"
"""Without ANSI mode, a decimal sum that is too large is NULL, and would take what is added to it for all there is."""


def _added(call: AggregateCall, argument: str, kept: str) -> str:
    """The sum of weighted arguments."""
    added = f"CAST(sum({_signed(call, argument)}) AS {kept})"
    if not _DECIMAL.fullmatch(kept):
        return added
    return f"CASE WHEN {added} IS NULL AND count({_guarded(call)}) > 0 THEN {_OVERFLOWN} ELSE {added} END"


def _folded(name: str, filled: str, kept: str) -> tuple[str, str]:
    """A stored sum and its number of terms with those of a change."""
    zero = f"CAST(0 AS {kept})"
    lost = f"WHEN o_{name} IS NULL AND o_{filled} > 0 THEN {_OVERFLOWN} " if _DECIMAL.fullmatch(kept) else ""
    return (
        f"CASE WHEN coalesce(o_{filled}, 0L) + d_{filled} = 0 THEN NULL {lost}"
        f"ELSE CAST(coalesce(o_{name}, {zero}) + coalesce(d_{name}, {zero}) AS {kept}) END",
        f"coalesce(o_{filled}, 0L) + d_{filled}",
    )


def _count(call: AggregateCall, name: str) -> CallState:
    return CallState(
        call=call,
        columns=(Column(name=name, type="bigint"),),
        whole=(f"count({_guarded(call)})",),
        delta=(_count_delta(call),),
        fold=(f"coalesce(o_{name}, 0L) + d_{name}",),
        finish=name,
        description="count kept",
    )


def _sum(call: AggregateCall, name: str) -> CallState:
    filled = f"{name}_n"
    floating = call.argument_type in _FLOATING
    return CallState(
        call=call,
        columns=(Column(name=name, type=call.type), Column(name=filled, type="bigint")),
        whole=(f"CAST(sum({_guarded(call)}) AS {call.type})", f"count({_guarded(call)})"),
        delta=(_added(call, _guarded(call), call.type), _count_delta(call)),
        fold=_folded(name, filled, call.type),
        finish=name,
        extra_delta=((f"{name}_removed", _removals(call)),) if floating else (),
        unsafe=f"d_{name}_removed > 0" if floating else None,
        exact=not floating,
        description="sum and count kept" + ("; the group is computed anew after a removal" if floating else ""),
    )


def _average(call: AggregateCall, name: str) -> CallState:
    filled = f"{name}_n"
    floating = call.argument_type in _FLOATING
    argument = _guarded(call)
    if call.argument_type in _INTEGRAL:
        argument, kept = f"CAST({argument} AS decimal(20,0))", "decimal(38,0)"
        finish = f"CAST({name} AS double) / {filled}"
    elif floating:
        argument, kept = f"CAST({argument} AS double)", "double"
        finish = f"{name} / {filled}"
    else:
        precision, scale = _decimal(str(call.argument_type))
        kept = f"decimal({precision + 10},{scale})"
        finish = f"CAST({name} / CAST({filled} AS decimal(20,0)) AS {call.type})"
    return CallState(
        call=call,
        columns=(Column(name=name, type=kept), Column(name=filled, type="bigint")),
        whole=(f"CAST(sum({argument}) AS {kept})", f"count({_guarded(call)})"),
        delta=(_added(call, argument, kept), _count_delta(call)),
        fold=_folded(name, filled, kept),
        finish=f"CASE WHEN {filled} = 0 THEN CAST(NULL AS {call.type}) ELSE {finish} END",
        extra_delta=((f"{name}_removed", _removals(call)),) if floating else (),
        unsafe=f"d_{name}_removed > 0" if floating else None,
        # Spark adds whole numbers up as doubles here, and rounds where we do not.
        exact=not floating and call.argument_type not in _INTEGRAL,
        description="sum and count kept" + ("; the group is computed anew after a removal" if floating else ""),
    )


def _extreme(call: AggregateCall, name: str) -> CallState:
    keeps, reaches, beats = ("least", "<=", "<") if call.function == "min" else ("greatest", ">=", ">")
    removed = f"CASE WHEN {WEIGHT} < 0 THEN {_guarded(call)} END"
    added = f"CASE WHEN {WEIGHT} > 0 THEN {_guarded(call)} END"
    whole = f"{call.function}({_guarded(call)})"
    # What is removed is no matter where something that is added lies beyond all of it.
    unsafe = (
        f"coalesce(d_{name}_removed {reaches} o_{name}, d_{name}_removed IS NOT NULL) "
        f"AND NOT coalesce(d_{name} {beats} d_{name}_removed, false)"
    )
    if call.chance is not None:  # Of zeros, the rows tell which there are (plan/zeros.py).
        whole = f"CASE WHEN {call.chance} THEN {by_chance(call)} ELSE {whole} END"
        unsafe = f"({unsafe}) OR coalesce(o_{name} = 0, false) OR coalesce(d_{name} = 0, false)"
    return CallState(
        call=call,
        columns=(Column(name=name, type=call.type),),
        whole=(whole,),
        delta=(f"{call.function}({added})",),
        fold=(f"{keeps}(o_{name}, d_{name})",),
        finish=name,
        extra_delta=((f"{name}_removed", f"{call.function}({removed})"),),
        unsafe=unsafe,
        unsafe_only_after_removals=call.chance is None,
        description=f"{call.function} kept; the group is computed anew when its {call.function} is removed",
    )


def _anew(call: AggregateCall, name: str) -> CallState:
    """No partial form: the value itself is stored, and every changed group is computed anew."""
    return CallState(
        call=call,
        columns=(Column(name=name, type=call.type),),
        whole=(call.text or f"CAST({call.function}({_guarded(call)}) AS {call.type})",),
        delta=(f"CAST(NULL AS {call.type})",),
        fold=(f"o_{name}",),
        finish=name,
        unsafe="true",
        unsafe_only_after_removals=False,
        exact=False,
        description="changed groups are computed anew",
    )


def _guarded(call: AggregateCall) -> str:
    """The argument, NULL where the call's FILTER leaves the row out."""
    argument = "1" if call.argument is None else call.argument
    return argument if call.filter is None else f"CASE WHEN {call.filter} THEN {argument} END"


def _count_delta(call: AggregateCall) -> str:
    if call.argument is None and call.filter is None:
        return f"CAST(coalesce(sum({WEIGHT}), 0) AS bigint)"
    return f"CAST(coalesce(sum(CASE WHEN ({_guarded(call)}) IS NOT NULL THEN {WEIGHT} ELSE 0 END), 0) AS bigint)"


def _removals(call: AggregateCall) -> str:
    return f"count(CASE WHEN {WEIGHT} < 0 THEN {_guarded(call)} END)"


def _signed(call: AggregateCall, argument: str) -> str:
    if call.function == "sum" and call.argument_type in _INTEGRAL:
        argument = f"CAST({argument} AS bigint)"  # the smallest value of a narrow type has no negative of that type
    return f"CASE WHEN {WEIGHT} > 0 THEN {argument} ELSE -({argument}) END"


def _adds_exactly(type_text: str) -> bool:
    if type_text in _INTEGRAL or type_text in _FLOATING:
        return True
    match = _DECIMAL.fullmatch(type_text)
    return match is not None and (
        int(match.group(1)) <= _WIDEST_FOLDED_SUM or int(match.group(2)) <= _SCALE_ALWAYS_KEPT
    )


def _decimal_precision(type_text: str) -> int | None:
    match = _DECIMAL.fullmatch(type_text)
    return int(match.group(1)) if match else None


def _decimal(type_text: str) -> tuple[int, int]:
    match = _DECIMAL.fullmatch(type_text)
    assert match is not None, type_text
    return int(match.group(1)), int(match.group(2))


def select_named(texts: tuple[str, ...], columns: tuple[Column, ...]) -> list[str]:
    return [f"{text} AS {quote(column.name)}" for text, column in zip(texts, columns, strict=True)]
