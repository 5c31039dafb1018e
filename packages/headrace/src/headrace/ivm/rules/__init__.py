"""The incremental rules, one operator a file. This table is the whole list."""

from __future__ import annotations

from typing import Any

from headrace.ivm.rules import aggregate, explode, inner_join, project, union_all
from headrace.ivm.rules import filter as filter_rule
from headrace.ivm.stages import Rule
from headrace.plan import nodes

RULES: dict[type, Rule[Any]] = {
    nodes.Filter: filter_rule.changes,
    nodes.Project: project.changes,
    nodes.UnionAll: union_all.changes,
    nodes.Explode: explode.changes,
    nodes.InnerJoin: inner_join.changes,
    nodes.Aggregate: aggregate.changes,
}
