"""The examples of the documents that Headrace implements, as they are written there."""

from __future__ import annotations

from typing import Any

from headrace import Lake
from headrace.samples import append_events, create_sample_data

SAMPLE = "headrace_sample_data.ecommerce_events_history.ecommerce_events_multicategorystore_live"


def history(lake: Lake, name: str) -> dict[str, Any]:
    result = lake.sql(f"SHOW DYNAMIC TABLE REFRESH HISTORY WHERE name='{name}'")
    return dict(zip(result.columns, result.rows[0], strict=True))


def test_event_type_count(lake: Lake) -> None:
    create_sample_data(lake, 500)
    lake.sql(
        f"""CREATE DYNAMIC TABLE event_type_count REFRESH interval 1 minute vcluster default as
        SELECT event_type, COUNT(*) AS events_count FROM {SAMPLE} GROUP BY event_type;
        --Initialize DYNAMIC TABLE data
        REFRESH DYNAMIC TABLE event_type_count;"""
    )
    assert history(lake, "event_type_count")["refresh_mode"] == "NO_DATA"
    before = dict(lake.sql("SELECT * FROM event_type_count").rows)
    assert set(before) == {"view", "purchase", "add_to_cart"}
    append_events(lake, SAMPLE, 100)
    lake.sql("REFRESH DYNAMIC TABLE event_type_count")
    row = history(lake, "event_type_count")
    assert row["refresh_mode"] == "INCREMENTAL"
    assert row["source_tables"] == (
        '[{"schema":"ecommerce_events_history","table_name":"ecommerce_events_multicategorystore_live",'
        '"workspace":"headrace_sample_data"}]'
    )
    after = dict(lake.sql("SELECT * FROM event_type_count").rows)
    assert sum(after.values()) == sum(before.values()) + 100
    assert lake.sql("VERIFY DYNAMIC TABLE event_type_count").rows[0][1] == "EQUAL"


def test_event_group_minute(lake: Lake) -> None:
    lake.sql(
        """CREATE TABLE event_tb ( event STRING, process DOUBLE, event_time TIMESTAMP );
        INSERT INTO event_tb VALUES ('event-0', 20.0, TIMESTAMP '2023-09-20 14:43:13'),
        ('event-0', 20.0, TIMESTAMP '2023-09-19 11:40:13'), ('event-1', 21.0, TIMESTAMP '2023-09-19 14:30:14'),
        ('event-1', 22.0, TIMESTAMP '2023-09-20 14:20:15');
        CREATE dynamic TABLE IF NOT EXISTS event_gettime AS SELECT event, process, YEAR(event_time) event_year,
        MONTH(event_time) event_month, DAY(event_time) event_day, hour(event_time) event_hour,
        minute(event_time) event_minute FROM event_tb;
        REFRESH dynamic TABLE event_gettime;
        CREATE dynamic TABLE IF NOT EXISTS event_group_minute AS SELECT event, event_hour, event_minute,
        SUM(process) process_sum FROM event_gettime GROUP BY event, event_hour, event_minute;
        refresh dynamic table event_group_minute;
        INSERT INTO event_tb VALUES ('event-0', 20.0, TIMESTAMP '2024-01-20 14:43:13');
        REFRESH DYNAMIC TABLE event_gettime; REFRESH DYNAMIC TABLE event_group_minute"""
    )
    row = history(lake, "event_gettime")
    assert (row["state"], row["refresh_trigger"], row["refresh_mode"]) == ("SUCCEED", "MANUAL", "INCREMENTAL")
    assert row["stats"] == '{"rows_deleted":"0","rows_inserted":"1"}'
    assert row["virtual_cluster"] == "DEFAULT"
    assert row["error_message"] is None
    assert history(lake, "event_group_minute")["refresh_mode"] == "INCREMENTAL"
    assert ("event-0", 14, 43, 40.0) in lake.sql("SELECT * FROM event_group_minute").rows
    for name in ("event_gettime", "event_group_minute"):
        assert lake.sql(f"VERIFY DYNAMIC TABLE {name}").rows[0][1] == "EQUAL"


def test_product_grossing(lake: Lake, schema: str) -> None:
    lake.sql(
        """CREATE TABLE ecommerce_events_multicategorystore_live(
        `event_time` timestamp, `event_type` string, `product_id` string, `category_id` string,
        `category_code` string, `brand` string, `price` decimal(10,2), `user_id` string, `user_session` string)
        TBLPROPERTIES('change_tracking'='true')"""
    )
    append_events(lake, "ecommerce_events_multicategorystore_live", 300)
    lake.sql(
        """CREATE TABLE events_enriched AS
        SELECT event_time, event_type, product_id, CAST(price AS DECIMAL(10,2)) AS price,
        CAST(SUBSTRING(event_time,0,19) AS date) AS event_date, CURRENT_TIMESTAMP() as loaded_at
        FROM ecommerce_events_multicategorystore_live"""
    )
    lake.sql(
        f"""/* {{"app": "dbt"}} */
        create or replace dynamic table {schema}.product_grossing
        refresh interval 5 minute
        vcluster default
        as
        select
        event_date,
        product_id,
        sum(price) sum_price
        from
        {schema}.events_enriched
        group by event_date,product_id;"""
    )
    described = lake.sql("desc extended product_grossing")
    assert described.columns == ["column_name", "data_type"]
    rows = dict(described.rows)
    assert (rows["event_date"], rows["product_id"], rows["sum_price"]) == ("date", "string", "decimal(20,2)")
    assert (rows["type"], rows["refresh_interval_second"], rows["refresh_type"]) == (
        "DYNAMIC TABLE",
        "300",
        "on schedule",
    )
    assert rows["refresh_vc"] == "default"
    assert f"main.{schema}.events_enriched" in rows["view_text"]
    listed = lake.sql("show tables")
    assert listed.columns == [
        "schema_name", "table_name", "is_view", "is_materialized_view", "is_external", "is_dynamic",
    ]  # fmt: skip
    assert (schema, "product_grossing", False, False, False, True) in listed.rows
    assert (schema, "events_enriched", False, False, False, False) in listed.rows
    lake.sql(
        "INSERT INTO events_enriched SELECT event_time, event_type, 'new', price, event_date, loaded_at "
        "FROM events_enriched LIMIT 7"
    )
    lake.sql("REFRESH DYNAMIC TABLE product_grossing")
    assert history(lake, "product_grossing")["refresh_mode"] == "INCREMENTAL"
    assert lake.sql("VERIFY DYNAMIC TABLE product_grossing").rows[0][1] == "EQUAL"
