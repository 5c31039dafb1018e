"""The walk of the Session API's guide: only its import lines and connection values are ours. Run by test_seed.py."""

import sys

from headrace import functions as F
from headrace.session import Session

session = Session.builder.configs(
    {
        "username": "your_username",
        "password": "your_password",
        "service": "embedded",
        "path": sys.argv[1],
        "instance": "your_instance",
        "workspace": "your_workspace",
        "schema": "public",
        "vcluster": "default",
    }
).create()

session.sql(
    """
    CREATE TABLE IF NOT EXISTS orders (
        id INT,
        name STRING,
        amount DECIMAL(10,2),
        status STRING
    )
    """
).collect()
session.sql("ALTER TABLE orders SET PROPERTIES ('change_tracking' = 'true')").collect()
session.sql(
    """
    INSERT INTO orders VALUES
        (1, 'Alice', 1000.00, 'active'),
        (2, 'Bob', 2000.00, 'active'),
        (3, 'Carol', 500.00, 'active')
    """
).collect()
session.sql(
    """
    CREATE TABLE STREAM orders_stream
    ON TABLE orders
    WITH PROPERTIES ('TABLE_STREAM_MODE' = 'STANDARD')
    """
).collect()

stream_df = session.table("orders_stream")
stream_df.printSchema()

session.sql("INSERT INTO orders VALUES (4, 'Dave', 3000.00, 'active')").collect()
session.sql("UPDATE orders SET amount = 1500.00 WHERE id = 1").collect()
session.sql("DELETE FROM orders WHERE id = 3").collect()

stream_df = session.table("orders_stream")
stream_df.show()

inserts_and_updates = stream_df.filter(F.col("`__change_type`").isin(["INSERT", "UPDATE_AFTER"])).select(
    "id", "name", "amount", "status"
)
deletes = stream_df.filter(F.col("`__change_type`") == "DELETE").select("id")
inserts_and_updates.show()
deletes.show()

session.sql(
    """
    CREATE TABLE IF NOT EXISTS orders_target (
        id INT,
        name STRING,
        amount DECIMAL(10,2),
        status STRING
    )
    """
).collect()

stream_df = session.table("orders_stream")
changes = stream_df.filter(F.col("`__change_type`").isin(["INSERT", "UPDATE_AFTER"])).select(
    "id", "name", "amount", "status"
)
changes.write.save_as_table("orders_target", mode="append")
print("left in the stream:", session.table("orders_stream").count())

session.sql("UPDATE orders SET status = 'closed' WHERE id IN (1, 2)").collect()
session.table("orders_stream").filter(F.col("__change_type") == "UPDATE_AFTER").select(
    "id", "name", "amount", "status"
).write.save_as_table("orders_changes_tmp", mode="overwrite")
session.sql(
    """
    MERGE INTO orders_target AS t
    USING orders_changes_tmp AS s
    ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET
        t.name = s.name, t.amount = s.amount, t.status = s.status
    WHEN NOT MATCHED THEN INSERT (id, name, amount, status)
        VALUES (s.id, s.name, s.amount, s.status)
    """
).collect()
session.sql("DROP TABLE IF EXISTS orders_changes_tmp").collect()
session.table("orders_target").sort("id").show()
session.close()
