"""What refreshes do only to be faster. Each can be switched off, and the results must stay the same: a test sees to it,
and when a result looks wrong, this is how to find out which of them it is."""

from __future__ import annotations

LOCAL_ROWS = "local_rows"
PUSHED_KEYS = "pushed_keys"
SHARED_PARTS = "shared_parts"
FOLDED_STATES = "folded_states"
STATE_TABLES = "state_tables"
ORDERED_COPIES = "ordered_copies"
COUNTED_MATCHES = "counted_matches"
SMALL_COMMITS = "small_commits"
NAMED_FILES = "named_files"
STORED_WINNERS = "stored_winners"
CHOICE_BY_COST = "choice_by_cost"

OPTIMISATIONS = {
    LOCAL_ROWS: "small changesets and small tables are held in the driver",
    PUSHED_KEYS: "the keys of a changeset are pushed into the reads of other inputs, as literals and ranges",
    SHARED_PARTS: "equal parts of a query, and a source that it names several times, are computed once",
    FOLDED_STATES: "groups are folded from their states instead of computed from their rows",
    STATE_TABLES: "the groups of aggregates inside a query over big sources are kept from one refresh to the next",
    ORDERED_COPIES: "a big source in which rows are looked up by a column is kept once more, in the order of that",
    COUNTED_MATCHES: "semi and outer joins count matches instead of joining both versions of the other side",
    SMALL_COMMITS: "small changesets are committed without a Spark write",
    NAMED_FILES: "tables are read by the names of their files, where that is all there is to it",
    STORED_WINNERS: "the best rows of a partition are compared with the stored ones; the partition is not ranked anew",
    CHOICE_BY_COST: "AUTO computes all rows when that is estimated to be faster",
}
