"""The 22 TPC-H queries, all INCREMENTAL, over three cycles of inserts, deletes and updates, each of all tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Lake
from headrace.errors import HeadraceError

QUERIES = sorted((Path(__file__).parents[2] / "benchmarks" / "queries").glob("q*.sql"))
TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
CYCLE = """
    INSERT INTO orders SELECT o_orderkey + {n}000000, o_custkey, o_orderstatus, o_totalprice, o_orderdate,
      o_orderpriority, o_clerk, o_shippriority, o_comment FROM orders WHERE o_orderkey % 97 = {n};
    INSERT INTO lineitem SELECT l_orderkey + {n}000000, l_partkey, l_suppkey, l_linenumber, l_quantity + 20,
      l_extendedprice * 2, l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate,
      l_shipinstruct, l_shipmode, l_comment FROM lineitem WHERE l_orderkey % 97 = {n};
    INSERT INTO customer SELECT c_custkey + {n}00000, c_name, c_address, c_nationkey, c_phone, c_acctbal + 500,
      c_mktsegment, c_comment FROM customer WHERE c_custkey % 31 = {n};
    INSERT INTO partsupp SELECT ps_partkey, ps_suppkey + {n}00000, ps_availqty, ps_supplycost / 2, ps_comment
      FROM partsupp WHERE ps_partkey % 50 = {n};
    INSERT INTO supplier SELECT s_suppkey + {n}00000, s_name, s_address, s_nationkey, s_phone, s_acctbal, s_comment
      FROM supplier WHERE s_suppkey < 100000;
    INSERT INTO part SELECT p_partkey + {n}00000, p_name, p_mfgr, p_brand, p_type, p_size, p_container, p_retailprice,
      p_comment FROM part WHERE p_partkey % 33 = {n};
    INSERT INTO nation VALUES (30 + {n}, 'ATLANTIS', 3, '');
    INSERT INTO region VALUES (9 + {n}, 'LEMURIA', '');

    DELETE FROM lineitem WHERE l_orderkey % 61 = 3 + {n};
    DELETE FROM orders WHERE o_orderkey % 61 = 5 + {n};
    DELETE FROM customer WHERE c_custkey % 29 = {n};
    DELETE FROM supplier WHERE s_suppkey % 13 = 2 + {n};
    DELETE FROM part WHERE p_partkey % 41 = 7 + {n};
    DELETE FROM partsupp WHERE ps_partkey % 37 = 4 + {n};
    DELETE FROM nation WHERE n_nationkey IN (29 + {n}, 17);
    DELETE FROM region WHERE r_regionkey = 8 + {n};

    UPDATE lineitem SET l_quantity = l_quantity + 5, l_receiptdate = l_receiptdate + INTERVAL 20 DAYS
      WHERE l_orderkey % 53 = 2 + {n};
    UPDATE orders SET o_orderpriority = '1-URGENT', o_orderstatus = 'F' WHERE o_orderkey % 47 = 6 + {n};
    UPDATE customer SET c_mktsegment = 'BUILDING', c_acctbal = -c_acctbal WHERE c_custkey % 23 = 3 + {n};
    UPDATE supplier SET s_comment = 'Customer Complaints', s_nationkey = 3 WHERE s_suppkey % 11 = 5 + {n};
    UPDATE part SET p_brand = 'Brand#23', p_container = 'MED BOX', p_type = 'PROMO BRASS'
      WHERE p_partkey % 43 = 8 + {n};
    UPDATE partsupp SET ps_supplycost = ps_supplycost * 3, ps_availqty = 1 WHERE ps_partkey % 39 = 9 + {n};
    UPDATE nation SET n_name = CASE n_name WHEN 'FRANCE' THEN 'GERMANY' WHEN 'GERMANY' THEN 'FRANCE' ELSE n_name END;
    UPDATE region SET r_name = CASE r_name WHEN 'AFRICA' THEN 'ASIA' WHEN 'ASIA' THEN 'AFRICA' ELSE r_name END
    """


@pytest.mark.timeout(2400)
def test_every_query_over_three_cycles(lake: Lake, tmp_path: Path) -> None:
    tool = Path(sys.executable).with_name("tpchgen-cli")
    command = [str(tool), "parquet", "-s", "0.01", f"--tables={','.join(TABLES)}", f"--output-dir={tmp_path}"]
    subprocess.run(command, check=True, capture_output=True)
    for table in TABLES:
        lake.spark.read.parquet(str(tmp_path / f"{table}.parquet")).write.saveAsTable(table)
    wrong: list[str] = []
    for query in QUERIES:
        try:
            lake.sql(f"CREATE DYNAMIC TABLE {query.stem} REFRESH_MODE = INCREMENTAL AS {query.read_text()}")
        except HeadraceError as error:
            wrong.append(f"{query.stem}: {error}")
    for number in (1, 2, 3):
        lake.sql(CYCLE.format(n=number))
        for query in QUERIES:
            try:
                result = lake.sql(f"REFRESH DYNAMIC TABLE {query.stem}")
                row = dict(zip(result.columns, result.rows[0], strict=True))
                verdict = lake.sql(f"VERIFY DYNAMIC TABLE {query.stem}").rows[0]
            except HeadraceError as error:
                wrong.append(f"{query.stem}, cycle {number}: {error}")
                continue
            if row["refresh_mode"] == "FULL" or verdict[1] != "EQUAL":
                wrong.append(f"{query.stem}, cycle {number}: {row['refresh_mode']}, {row['reason']}, {verdict}")
    assert len(QUERIES) == 22
    assert not wrong, "\n".join(wrong)
