"""What is changed between the moment a refresh is asked for and the moment it begins, or while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import Lake
from headrace.catalog.records import ASKED_FOR, DynamicTable
from headrace.errors import HeadraceError
from headrace.refresh.committing import Committer
from headrace.refresh.runner import Runner
from headrace.refresh.stored import read_stored
from headrace.statements import replacing
from headrace.statements.storing import DEFINITION
from refresh.test_sources import refresh

TABLE = """
    CREATE TABLE o (id INT, customer STRING, price INT);
    INSERT INTO o VALUES (1, 'ann', 10), (2, 'bob', 20), (3, 'ann', 5);
    CREATE DYNAMIC TABLE d AS SELECT customer, sum(price) AS total FROM o GROUP BY customer
    """


def definition(lake: Lake) -> DynamicTable:
    return lake._context.require_dynamic(("d",))


def beside(lake: Lake) -> str:
    """The definition that the storage table carries."""
    path = definition(lake).storage_path
    lake._context.logs.forget(path)
    return str(lake._context.logs.snapshot(path).properties[DEFINITION])


def verify(lake: Lake) -> None:
    assert lake.sql("VERIFY DYNAMIC TABLE d").rows[0][1] == "EQUAL"


def test_a_refresh_that_waited_refreshes_the_table_as_it_is_now(lake: Lake) -> None:
    lake.sql(TABLE)
    asked = definition(lake)
    lake.sql("CREATE OR REPLACE DYNAMIC TABLE d AS SELECT id, price * 2 AS twice FROM o WHERE id > 1")
    lake.sql("INSERT INTO o VALUES (4, 'eve', 7)")
    record = lake._context.runner.refresh(asked)
    assert record.refresh_mode == "INCREMENTAL", "the new query's change, and not the old query again"
    assert sorted(lake.sql("SELECT * FROM d").rows) == [(2, 40), (3, 10), (4, 14)]
    verify(lake)
    lake.sql("DROP DYNAMIC TABLE d")
    with pytest.raises(HeadraceError, match="There is no dynamic table"):
        lake._context.runner.refresh(asked)


def test_settings_that_are_altered_meanwhile_stay(lake: Lake) -> None:
    lake.sql(TABLE)
    asked = definition(lake)
    lake.sql("ALTER DYNAMIC TABLE d SUSPEND; ALTER DYNAMIC TABLE d SET REFRESH INTERVAL 7 MINUTE")
    # The query must be read again, which writes the definition.
    lake.sql("DROP TABLE o; CREATE TABLE o (customer STRING, price INT, id INT); INSERT INTO o VALUES ('ann', 3, 1)")
    record = lake._context.runner.refresh(asked)
    assert record.refresh_mode == "FULL"
    assert (definition(lake).suspended, definition(lake).interval_seconds) == (True, 420)
    assert lake.sql("SELECT * FROM d").rows == [("ann", 3)]
    verify(lake)


def test_settings_can_be_altered_while_a_refresh_runs(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.sql(f"{TABLE}; INSERT INTO o VALUES (4, 'eve', 7)")
    commit = Committer.commit

    def altered(committer: Committer, *given: Any) -> Any:
        lake.sql("ALTER DYNAMIC TABLE d SUSPEND; ALTER DYNAMIC TABLE d SET PROPERTIES ('owner'='ann')")
        return commit(committer, *given)

    monkeypatch.setattr(Committer, "commit", altered)
    assert refresh(lake, "d")["refresh_mode"] == "INCREMENTAL", "the refresh is not disturbed"
    assert definition(lake).suspended
    assert '"suspended":true' in beside(lake), "written there when the refresh had ended"
    assert '"owner":"ann"' in beside(lake)
    verify(lake)


def test_a_query_that_fails_leaves_the_old_one_and_what_was_altered(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.sql(TABLE)
    commit = Committer._commit_whole

    def altered(committer: Committer, *given: Any) -> Any:
        lake.sql("ALTER DYNAMIC TABLE d SET REFRESH INTERVAL 7 MINUTE")
        return commit(committer, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Committer, "_commit_whole", altered)
        with pytest.raises(HeadraceError, match="by zero"):
            lake.sql("CREATE OR REPLACE DYNAMIC TABLE d COMMENT 'new' AS SELECT id, 1 DIV (id - 1) AS x FROM o")
    now = definition(lake)
    assert (now.generation, now.stale_reason, now.comment, now.interval_seconds) == (1, None, None, 420)
    lake.sql("INSERT INTO o VALUES (4, 'eve', 7)")
    assert refresh(lake, "d")["refresh_mode"] == "INCREMENTAL"
    verify(lake)


def test_two_who_replace_the_query(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second finds another table than the one it was going to replace."""
    lake.sql(TABLE)
    present = Runner._present
    replaced: list[bool] = []

    def replaced_before(runner: Runner, table: DynamicTable) -> DynamicTable:
        found = present(runner, table)
        if replaced:
            return found
        replaced.append(True)
        return found.model_copy(update={"generation": found.generation + 1})

    monkeypatch.setattr(Runner, "_present", replaced_before)
    with pytest.raises(HeadraceError, match="replaced by somebody else"):
        lake.sql("CREATE OR REPLACE DYNAMIC TABLE d AS SELECT id, price + 1 AS more FROM o")
    assert sorted(lake.sql("SELECT * FROM d").rows) == [("ann", 15), ("bob", 20)]
    verify(lake)


def test_a_view_that_could_not_be_made_is_made_by_the_next_refresh(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.sql(TABLE)

    def full(*given: Any) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(replacing, "create_view", full)
        with pytest.raises((HeadraceError, OSError)):
            lake.sql("ALTER DYNAMIC TABLE d RENAME COLUMN total TO spent")
    refresh(lake, "d")
    assert sorted(lake.sql("SELECT customer, spent FROM d").rows) == [("ann", 15), ("bob", 20)]
    assert definition(lake).stale_reason is None
    verify(lake)


def test_rows_that_were_asked_for_are_still_computed_after_a_restart(lake: Lake) -> None:
    lake.sql(TABLE)
    context, table = lake._context, definition(lake)
    asked = context.store.change_table(table.id, lambda it: it.model_copy(update={"stale_reason": ASKED_FOR}))
    replacing.settle_replacement(context, asked, read_stored(context.logs, asked))
    assert definition(lake).stale_reason == ASKED_FOR
    done = refresh(lake, "d")
    assert (done["refresh_mode"], done["reason"]) == ("FULL", ASKED_FOR)
    assert definition(lake).stale_reason is None
    verify(lake)
