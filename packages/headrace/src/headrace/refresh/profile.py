"""What one refresh worked on, for the history and DESC JOB."""

from __future__ import annotations

from headrace.catalog.records import InputProfile, StepProfile
from headrace.ivm.sources import SourceRange
from headrace.ivm.stages import Stages
from headrace.plan.explain import tree
from headrace.plan.nodes import Node, Relation
from headrace.plan.query import Query
from headrace.refresh.planner import SourceFacts
from headrace.storage.delta import DeltaLogs


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


def total(values: list[int | None]) -> int | None:
    """The sum, when every part is known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def steps_of(query: Query, stages: Stages, result_rows: int | None) -> tuple[StepProfile, ...]:
    """Each operator with the rows of the changesets around it, as far as they were counted: operators that work row by
    row run inside the next step, uncounted."""
    if query.plan is None:
        return ()

    def rows_out(node: Node) -> int | None:
        if not stages.changed(node):
            return 0
        if node is root:
            return result_rows
        if isinstance(node, Relation):
            return stages.sources[node.source].rows
        return stages.counted.get(id(node))

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
        )
        for line in tree(root, names)
    )
