"""Alerts of a lake that refreshes by itself, told to a receiver on this machine: once when it begins, once when it is
over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from headrace import Lake
from headrace.catalog.records import Alert
from headrace.errors import RefreshFailed
from receivers import Web, web_receiver

if TYPE_CHECKING:
    from schedule.conftest import Scheduled


@pytest.fixture
def web(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A receiver, and a lake that may send to it."""
    allowed = lake.settings.model_copy(update={"alert_private_hosts": True})
    monkeypatch.setattr(lake, "settings", allowed)
    monkeypatch.setattr(lake._context, "settings", allowed)
    with web_receiver() as web:
        yield web
    for alert in lake.store.alerts.all():
        lake.sql(f"DROP ALERT {alert.name}")


def told(web: Web) -> list[tuple[Any, Any, Any]]:
    """What the receiver was told, one by one or together."""
    return [
        (each["event"], post.body["state"], each["object"].rpartition(".")[2])
        for post in web.got
        for each in post.body.get("incidents", [post.body])
    ]


def test_once_when_it_fails_and_once_when_it_works_again(web: Web, scheduled: Scheduled) -> None:
    scheduled.sql(
        f"""CREATE TABLE src (n INT); INSERT INTO src VALUES (1);
        CREATE DYNAMIC TABLE shares REFRESH INTERVAL 1 MINUTE AS SELECT 100 DIV n AS share FROM src;
        CREATE ALERT ops ON FAILURE, SUSPENSION, LAG > '3 minutes' FOR DYNAMIC TABLE shares
          NOTIFY '{web.url("/secret")}'"""
    )
    look = scheduled.lake.alerts.look
    scheduled.minutes(1)
    look()
    assert told(web) == []
    scheduled.sql("INSERT INTO src VALUES (0)")
    for _ in range(2):
        scheduled.minutes(1)
        look()
        look()
    assert told(web) == [("FAILURE", "OPEN", "shares")]
    assert "zero" in web.got[0].body["text"].lower()
    assert "After five failures in a row it is suspended." in web.got[0].body["text"]
    assert "DESC JOB '" in web.got[0].body["text"]
    for _ in range(3):
        scheduled.minutes(1)
        look()
    assert sorted(told(web)) == [
        ("FAILURE", "OPEN", "shares"), ("LAG", "OPEN", "shares"), ("SUSPENSION", "OPEN", "shares"),
    ]  # fmt: skip
    scheduled.sql("DELETE FROM src WHERE n = 0; ALTER DYNAMIC TABLE shares RESUME")
    scheduled.minutes(1)
    look()
    look()
    assert sorted(told(web)[3:]) == [
        ("FAILURE", "CLOSED", "shares"), ("LAG", "CLOSED", "shares"), ("SUSPENSION", "CLOSED", "shares"),
    ]  # fmt: skip
    (alert,) = scheduled.lake.store.alerts.all()
    assert isinstance(alert, Alert)
    shown = str([scheduled.sql(text).rows for text in ("SHOW ALERTS", "SHOW ALERT HISTORY", "SHOW JOBS")])
    assert "secret" not in shown + str(alert)
    assert scheduled.sql("VERIFY DYNAMIC TABLE shares").rows[0][1] == "EQUAL"


@pytest.mark.timeout(120)
def test_a_task_that_takes_too_long(web: Web, scheduled: Scheduled) -> None:
    scheduled.sql(
        f"""CREATE TASK slow SCHEDULE = '1 minute' TIMEOUT = '1 second' AS
          SELECT count(*) FROM range(0, 100000000000000, 1, 1);
        CREATE ALERT ops ON TIMEOUT FOR ALL NOTIFY '{web.url()}'"""
    )
    scheduled.minutes(1)
    scheduled.lake.alerts.look()
    assert told(web) == [("TIMEOUT", "OPEN", "slow")]
    scheduled.sql("CREATE OR REPLACE TASK slow SCHEDULE = '1 minute' AS SELECT 1")
    scheduled.minutes(1)
    scheduled.lake.alerts.look()
    assert told(web)[1:] == [("TIMEOUT", "CLOSED", "slow")]


def test_what_somebody_asks_for_and_fails(web: Web, scheduled: Scheduled) -> None:
    """As another scheduler does: tables and tasks without times."""
    scheduled.sql(
        f"""CREATE TABLE src (n INT); INSERT INTO src VALUES (1);
        CREATE DYNAMIC TABLE shares AS SELECT 100 DIV n AS share FROM src;
        CREATE TASK divide AS SELECT 100 DIV min(n) FROM src;
        CREATE ALERT ops ON FAILURE NOTIFY '{web.url()}'"""
    )
    look = scheduled.lake.alerts.look
    scheduled.sql("INSERT INTO src VALUES (0)")
    with pytest.raises(RefreshFailed):
        scheduled.sql("REFRESH DYNAMIC TABLE shares")
    scheduled.sql("EXECUTE TASK divide")
    scheduled.settle()
    look()
    look()
    assert sorted(told(web)) == [("FAILURE", "OPEN", "divide"), ("FAILURE", "OPEN", "shares")]
    assert len(web.got) == 1, "together"
    assert "that somebody asked for failed" in web.got[0].body["text"]
    scheduled.sql("DELETE FROM src WHERE n = 0; REFRESH DYNAMIC TABLE shares; EXECUTE TASK divide")
    scheduled.settle()
    look()
    assert sorted(told(web)[2:]) == [("FAILURE", "CLOSED", "divide"), ("FAILURE", "CLOSED", "shares")]
