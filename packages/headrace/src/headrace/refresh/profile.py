"""What one refresh worked on, for the history and DESC JOB."""

from __future__ import annotations

from headrace.catalog.records import InputProfile, StepProfile
from headrace.ivm.layout import grouped_root
from headrace.ivm.matching import kept_aggregates
from headrace.ivm.rules.texts import rule_texts
from headrace.ivm.sources import SourceRange
from headrace.ivm.stages import Stages, state_key
from headrace.plan.explain import tree
from headrace.plan.nodes import Node, Project, Relation, UnionAll
from headrace.plan.query import Query
from headrace.refresh.planner import SourceFacts
from headrace.storage.delta import DeltaLogs
from headrace.storage.scans import Scan


def inputs_of(
    logs: DeltaLogs, facts: tuple[SourceFacts, ...], ranges: tuple[SourceRange, ...]
) -> tuple[InputProfile, ...]:
    """Each source with the size of its change and of all of it, from the logs' own statistics."""
    found = []
    for fact, span in zip(facts, ranges, strict=True):
        rows, size = logs.statistics(fact.new.path)
        changed = span.rows if span.changed else 0
        bytes_changed = None if changed is None or not rows else round(changed * size / rows)
        found.append(
            InputProfile(name=fact.name, changed_rows=changed, changed_bytes=bytes_changed, rows=rows, size=size)
        )
    return tuple(found)


def with_reads(
    inputs: tuple[InputProfile, ...], paths: list[str], scans: list[Scan] | None
) -> tuple[InputProfile, ...]:
    """The same with what was read of each, whose folders are `paths`."""
    if scans is None:
        return inputs
    return tuple(
        each.model_copy(
            update={
                "rows_read": sum(scan.rows for scan in scans if _is_below(scan.location, path)),
                "bytes_opened": sum(scan.size for scan in scans if _is_below(scan.location, path)),
            }
        )
        for each, path in zip(inputs, paths, strict=True)
    )


def _is_below(location: str, path: str) -> bool:
    """Whether a location as Spark writes it, with a scheme, lies in a folder.

    >>> _is_below("file:/lake/t/part-0, file:/lake/t/part-1", "/lake/t"), _is_below("file:/lake/t2/x", "/lake/t")
    (True, False)
    """
    first = location.split(",")[0]
    return f"{path.rstrip('/')}/" in f"{first}/"


def total(values: list[int | None]) -> int | None:
    """The sum, when every part is known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def steps_of(
    query: Query, stages: Stages, result_rows: int | None, stored_groups: int | None, kept: dict[str, int]
) -> tuple[StepProfile, ...]:
    """Each operator with the rows of the changesets around it, as far as they were counted: operators that work row by
    row run inside the next step, uncounted. `stored_groups` is the number of groups at the root, `kept` those of the
    state tables by their keys."""
    if query.plan is None:
        return ()

    def rows_out(node: Node) -> int | None:
        if not stages.changed(node):
            return 0
        if node is root:
            return result_rows
        if isinstance(node, Relation):
            return stages.sources[node.source].rows
        if id(node) in stages.counted:
            return stages.counted[id(node)]
        if isinstance(node, Project):
            return rows_out(node.child)
        return total([rows_out(child) for child in node.inputs]) if isinstance(node, UnionAll) else None

    grouped = grouped_root(query.plan)

    def state_rows(node: Node) -> int | None:
        if grouped is not None and node is grouped.aggregate:
            return stored_groups
        return next((kept.get(state_key(aggregate)) for owner, aggregate in owners if owner is node), None)

    owners = kept_aggregates(query.plan.root)
    rules = rule_texts(query.plan, stages.off)

    root = query.plan.root
    names = tuple(source.name for source in query.sources)
    return tuple(
        StepProfile(
            depth=line.depth,
            kind=line.node.kind,
            operator=line.operator,
            detail=line.detail,
            rows_in=total([rows_out(child) for child in line.node.children]) if line.node.children else None,
            rows_out=rows_out(line.node),
            state_rows=state_rows(line.node),
            rule=rules[id(line.node)],
        )
        for line in tree(root, names)
    )
