"""How each operator of a plan is maintained, in a few words, for EXPLAIN and DESC JOB."""

from __future__ import annotations

from headrace.ivm.layout import Grouped, grouped_root
from headrace.ivm.rules.partitions import partitions_root
from headrace.ivm.rules.top import top_root
from headrace.optimisations import FOLDED_STATES, STORED_WINNERS
from headrace.plan.nodes import Node, Plan, Window

_RULES = {
    "relation": "its change feed",
    "project": "Δπ(A) = π(ΔA)",
    "filter": "Δσ(A) = σ(ΔA)",
    "union_all": "Δ(A + B) = ΔA + ΔB",
    "explode": "Δ explode(A) = explode(ΔA)",
    "inner_join": "Δ(L ⋈ R) = ΔL ⋈ R_new + L_old ⋈ ΔR",
    "outer_join": "Δ(L ⟕ R) = ΔL ⟕ R_new + L_old ⋈ ΔR ± NULLs for first and last matches",
    "semi_join": "Δ(L ⋉ R) = ΔL ⋉ R_new + the rows of L whose first match comes with ΔR or last one goes",
    "aggregate": "the affected groups, before and after",
    "window": "the affected partitions, before and after",
    "expand": "Δ expand(A) = expand(ΔA)",
    "values": "never changes",
}
_PARTITIONS = "the stored rows of the affected partitions against those computed anew"
_ONE_PARTITION = "no PARTITION BY: all rows are computed anew, and compared with those before"
_WINNERS = "the stored winners of the affected partitions against Δ; read again where one is lost"


def rule_texts(plan: Plan, off: frozenset[str]) -> dict[int, str]:
    """The rule of each operator, by the id of its node; `off` are the optimisations to do without."""
    root = grouped_root(plan)
    best = top_root(plan) if STORED_WINNERS not in off else None
    replaced = partitions_root(plan)

    def rule(node: Node) -> str:
        if best is not None and node is best.window:
            return _WINNERS
        if isinstance(node, Window) and not node.keys:
            return _ONE_PARTITION
        if replaced is not None and node is replaced.window:
            return _PARTITIONS
        if root is not None and node is root.aggregate:
            return _grouped(root, off)
        if root is not None and any(node is above for above in root.finish):
            return "computed from the state of each changed group"
        return _RULES[node.kind]

    found: dict[int, str] = {}
    waiting: list[Node] = [plan.root]
    while waiting:
        node = waiting.pop()
        found[id(node)] = rule(node)
        waiting += node.children
    return found


def _grouped(root: Grouped, off: frozenset[str]) -> str:
    if FOLDED_STATES in off or any(state.unsafe == "true" for state in root.states):
        return "state kept in hidden columns; changed groups are computed anew from their rows"
    return "state kept in hidden columns: fold(state, Δ)"
