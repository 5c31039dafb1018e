"""The incremental rules, one operator a file. This table is the whole list."""

from __future__ import annotations

from typing import Any

from headrace.ivm.rules import aggregate, expand, explode, inner_join, outer_join, project, semi_join, union_all, window
from headrace.ivm.rules import filter as filter_rule
from headrace.ivm.stages import Rule
from headrace.plan import nodes

RULES: dict[type, Rule[Any]] = {
    nodes.Filter: filter_rule.changes,
    nodes.Project: project.changes,
    nodes.UnionAll: union_all.changes,
    nodes.Explode: explode.changes,
    nodes.Expand: expand.changes,
    nodes.InnerJoin: inner_join.changes,
    nodes.OuterJoin: outer_join.changes,
    nodes.SemiJoin: semi_join.changes,
    nodes.Aggregate: aggregate.changes,
    nodes.Window: window.changes,
}
