"""EXPLAIN REFRESH, EXPLAIN INCREMENTAL, DESC JOB and VERIFY."""

from __future__ import annotations

import json

import pyarrow as pa

from headrace.catalog.records import (
    DynamicTable,
    Frontier,
    InputProfile,
    Profile,
    RefreshMode,
    RefreshRecord,
    StepProfile,
)
from headrace.errors import NotFound
from headrace.ivm.layout import grouped_root, layout_of
from headrace.ivm.matching import kept_aggregates
from headrace.ivm.rules.texts import rule_texts
from headrace.ivm.sources import SourceRange
from headrace.ivm.stages import state_key
from headrace.plan import nodes
from headrace.plan.explain import tree
from headrace.plan.query import Query, shown_rows
from headrace.refresh.ordered import OrderedCopies
from headrace.refresh.planner import SourceFacts, each_new_day
from headrace.refresh.states import StateTables
from headrace.refresh.verify import Verdict, verify
from headrace.result import Result, counted, from_rows
from headrace.sql import statements as sql
from headrace.statements import jobs, permitting
from headrace.statements.context import Context
from headrace.statements.reading import read

_EXPLAIN = [("section", pa.string()), ("item", pa.string()), ("value", pa.string())]
_VERIFY = [
    ("name", pa.string()), ("result", pa.string()), ("rows", pa.int64()), ("missing", pa.int64()),
    ("unexpected", pa.int64()), ("version", pa.int64()), ("source_versions", pa.string()),
]  # fmt: skip

Row = tuple[str, str, str]


def explain_refresh(context: Context, statement: sql.ExplainRefresh) -> Result:
    """What the next refresh would do and why, each operator with its rule and state, each precondition."""
    table = context.require_dynamic(statement.name)
    look = context.runner.outlook(table)
    decision = look.decision
    rows: list[Row] = [
        ("decision", "next refresh", decision.mode),
        ("decision", "reason", decision.reason or _reason(decision.mode)),
        ("decision", "refresh_mode setting", table.refresh_mode),
    ]
    if decision.estimate is not None:
        rows.append(("decision", "estimate", str(decision.estimate)))
    rows += _each_new_day(table.query, table.refresh_mode)
    rows += [("precondition", check.text, "yes" if check.holds else "no") for check in decision.checks]
    for fact in look.facts:
        span = next((r for r in decision.ranges if r.path == fact.new.path), None)
        rows.append(("source", fact.name, source_change(fact, span)))
    rows += query_rows(table.query, context.runner.off)
    rows += _state_tables(context, table, look.stored.note.frontier if look.stored.note is not None else None)
    rows += _ordered_copies(context, table)
    if look.stored.note is not None:
        note = look.stored.note
        rows.append(("storage", "live rows", str(note.live_rows)))
        rows.append(("storage", "tombstones", str(note.tombstones)))
        rows.append(("storage", "appends since the last fold", str(note.appends_since_fold)))
    return from_rows(_EXPLAIN, rows)


def _each_new_day(query: Query, refresh_mode: RefreshMode) -> list[Row]:
    told = each_new_day(query, refresh_mode)
    return [] if told is None else [("decision", "each new day", told)]


def _state_tables(context: Context, table: DynamicTable, frontier: Frontier | None) -> list[Row]:
    """The kept groups of aggregates inside the query."""
    states = StateTables(context.spark, context.logs, table, context.progress)
    plan = table.query.plan
    lines = tree(plan.root, tuple(source.name for source in table.query.sources)) if plan is not None else []
    kept = kept_aggregates(plan.root) if plan is not None else []
    found = []
    for node, state in states.all():
        owner = next(owner for owner, aggregate in kept if state_key(aggregate) == state_key(node))
        text = next(f"{line.operator} {line.detail}" for line in lines if line.node is owner)
        if not isinstance(owner, nodes.Aggregate):
            text = f"keys of the {text}"
        if not state.note.worth_keeping:
            value = "not kept: nearly as many groups as source rows"
        else:
            at = frontier is not None and states.is_at(node, state, frontier)
            value = f"state table of {counted(state.note.live_rows or 0, 'group')}" + (
                "" if at else ", to be made again"
            )
        found.append(("state", text, value))
    return found


def _ordered_copies(context: Context, table: DynamicTable) -> list[Row]:
    """The sources that are kept once more, in the order of another column."""
    found = []
    copies = OrderedCopies(context.spark, context.logs, table, context.progress)
    for copy in copies.all():
        rows = copies.rows(copy)
        if rows is None:
            continue
        told = f"ordered copy of {counted(rows, 'row')} and {counted(copy.newest.changed, 'change')}"
        told += f", version {copy.newest.version}"
        found.append(("state", f"{copy.note.name} by {copy.note.key}", told))
    return found


def explain_incremental(context: Context, statement: sql.ExplainIncremental) -> Result:
    """Whether and how a query would be maintained, before any table exists."""
    query = read(context, statement.query, statement.text, statement.query_offset)
    mode = "INCREMENTAL" if query.plan is not None else "FULL"
    reason = f"No incremental rule: {query.unsupported}." if query.plan is None else "Every operator has a rule."
    rows: list[Row] = [("decision", "would refresh", mode), ("decision", "reason", reason)]
    rows += _each_new_day(query, "AUTO")
    return from_rows(_EXPLAIN, rows + query_rows(query, context.runner.off))


def describe_job(context: Context, statement: sql.DescribeJob) -> Result:
    """What a job did and took; of a refresh also how, reading what, each operator with the rows around it."""
    record = context.store.refresh(statement.job_id)
    job = jobs.known(context, statement.job_id)
    if job is None and (record is None or context.store.jobs.get(statement.job_id) is not None):
        raise NotFound(
            f"There is no job '{statement.job_id}'.",
            hint="SHOW JOBS lists the jobs, SHOW DYNAMIC TABLE REFRESH HISTORY the refreshes with their job ids.",
        )
    refresh = [] if record is None else [fact for fact in _refresh_facts(context, record) if fact[2] is not None]
    told = {fact[:2] for fact in refresh}  # Of what both tell, the refresh knows more.
    own = [] if job is None else [fact for fact in jobs.facts(context, job) if fact[:2] not in told]
    facts = [(section, item, str(value)) for section, item, value in (*own, *refresh) if value is not None]
    sections = list(dict.fromkeys(section for section, _, _ in facts))
    return from_rows(_EXPLAIN, sorted(facts, key=lambda fact: sections.index(fact[0])))


def _refresh_facts(context: Context, record: RefreshRecord) -> list[jobs.Fact]:
    profile = record.profile
    table = context.store.table_by_id(record.table_id)
    if not (context.user.is_admin if table is None else permitting.explains(context, table)):
        profile = profile.model_copy(update={"inputs": (), "steps": ()})
    name = f"{record.workspace}.{record.schema_name}.{record.name}"
    facts: list[jobs.Fact] = [
        ("job", "refresh of", name),
        ("job", "state", record.state),
        ("job", "trigger", record.trigger),
        ("job", "vcluster", record.vcluster),
        ("job", "refresh_mode", record.refresh_mode),
        ("job", "technique", record.technique),
        ("job", "reason", record.reason),
        ("job", "error", record.error_message),
        ("result", "rows inserted", record.rows_inserted),
        ("result", "rows deleted", record.rows_deleted),
        ("result", "rows written", profile.rows_written),
        ("result", "bytes written", profile.bytes_written),
        ("cost", "seconds", profile.seconds),
        *estimates(profile),
        ("cost", "Spark jobs", profile.spark_jobs),
        ("cost", "commits", profile.commits),
        ("cost", "rows read", profile.rows_read),
        ("cost", "bytes read", profile.bytes_read),
        ("cost", "bytes changed in the sources", profile.change_bytes),
        ("cost", "bytes read per changed byte", _ratio(profile.bytes_read, profile.change_bytes)),
        ("state", "stored rows", profile.state_rows),
        ("state", "stored bytes", profile.state_bytes),
    ]
    facts += [("input", each.name, _input(each)) for each in profile.inputs]
    facts += [
        (
            "operator",
            f"{'  ' * step.depth}{step.operator} {step.detail}".rstrip(),
            f"rows in: {_number(step.rows_in)}, out: {_number(step.rows_out)}; {_kept(step)}{step.rule}",
        )
        for step in profile.steps
    ]
    return facts


def estimates(profile: Profile) -> list[jobs.Fact]:
    """Both or none: what all rows would take is handed on from refresh to refresh, also where there is no choice."""
    if profile.estimated_incremental_seconds is None or profile.estimated_full_seconds is None:
        return []
    return [
        ("cost", "estimated seconds, incremental", profile.estimated_incremental_seconds),
        ("cost", "estimated seconds, all rows", profile.estimated_full_seconds),
    ]


def _input(each: InputProfile) -> str:
    changes = "changes not counted" if each.changed_rows is None else counted(each.changed_rows, "change")
    if each.changed_bytes:
        changes += f" of {each.changed_bytes} bytes"
    read = ""
    if each.rows_read is not None:
        read = f"{counted(each.rows_read, 'row')} read, from files of {each.bytes_opened} bytes; "
    return f"{changes}; {read}{counted(each.rows, 'row')} and {each.size} bytes in all"


def _kept(step: StepProfile) -> str:
    return "" if step.state_rows is None else f"{counted(step.state_rows, 'group')} kept; "


def _number(value: int | None) -> str:
    return "not counted" if value is None else str(value)


def _ratio(read: int | None, changed: int | None) -> str | None:
    return f"{read / changed:.1f}" if read is not None and changed else None


def _reason(mode: str) -> str:
    return "Nothing changed since the last refresh." if mode == "NO_DATA" else "Every precondition holds."


def source_change(fact: SourceFacts, span: SourceRange | None) -> str:
    """From which version of a source to which the next refresh goes, and how much changed between them."""
    if fact.old is None:
        return f"version {fact.new.version}, all rows: not read before"
    if fact.is_another_table:
        change = "another table, created since under this name"
    else:
        change = "no change" if span is None or not span.changed else _change(span.rows, span.insert_only)
    return f"version {fact.old.version} → {fact.new.version}: {change}"


def _change(rows: int | None, insert_only: bool) -> str:
    count = "changed" if rows is None else f"{counted(rows, 'row')} touched"
    return f"{count}, only insertions" if insert_only else count


def query_rows(query: Query, off: frozenset[str]) -> list[Row]:
    if query.plan is None:
        return [("plan", "whole query", f"recomputed by Spark: {query.unsupported}")]
    root = grouped_root(query.plan)
    rules = rule_texts(query.plan, off)
    names = tuple(source.name for source in query.sources)
    rows: list[Row] = []
    if query.cut is not None:
        rows.append(("plan", query.cut.clause, "applied by the view; all rows are kept"))
    for line in tree(query.plan.root, names):
        operator = f"{'  ' * line.depth}{line.operator} {line.detail}".rstrip()
        rows.append(("plan", operator, rules[id(line.node)]))
    if root is not None:
        rows.append(("state", "__hr_count", "rows per group"))
        rows += [
            ("state", ", ".join(column.name for column in state.columns), f"{state.call.function}: {state.description}")
            for state in root.states
        ]
    hidden = [column.name for column in layout_of(query).hidden]
    rows.append(("state", "hidden columns", ", ".join(hidden)))
    return rows


def _result(verdict: Verdict) -> str:
    return "EQUAL" if verdict.equal else "AMBIGUOUS" if verdict.ambiguous else "DIFFERENT"


def verify_table(context: Context, statement: sql.VerifyDynamicTable) -> Result:
    table = context.require_dynamic(statement.name)
    context.progress.tell(f"Comparing {table.table_name} with its query at its frontier")
    verdict = verify(context.spark, context.logs, table)
    return from_rows(
        _VERIFY,
        [
            (
                str(table.table_name), _result(verdict),
                shown_rows(verdict.rows, table.query.cut), verdict.missing,
                verdict.unexpected, verdict.version, json.dumps(verdict.sources),
            )
        ],
    )  # fmt: skip
