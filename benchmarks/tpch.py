"""TPC-H data, its 22 queries as dynamic tables, and changes of a given share of the data.

The changes are those of a shop: new orders with their items, corrected and cancelled ones, new offers of suppliers.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace import Lake

HERE = Path(__file__).parent
TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
QUERIES = {path.stem: path.read_text() for path in sorted((HERE / "queries").glob("q*.sql"))}
KEYS = 6_000_000
"""Order keys go up to so many at scale 1; one in four is used."""


@dataclass(frozen=True)
class Change:
    """`share` of the orders, their items and the offers: all new ones, or a third each new, updated and deleted."""

    share: float
    kind: Literal["inserts", "mixed"]

    @property
    def title(self) -> str:
        return f"{self.share * 100:g} % {self.kind}"


def generated(scale: str) -> Path:
    folder = HERE / "data" / f"tpch-{scale}"
    if all((folder / f"{table}.parquet").exists() for table in TABLES):
        return folder
    print(f"Making TPC-H data at scale {scale} …", flush=True)
    tool = Path(sys.executable).with_name("tpchgen-cli")
    command = [str(tool), "parquet", "-s", scale, f"--tables={','.join(TABLES)}", f"--output-dir={folder}"]
    subprocess.run(command, check=True)
    return folder


def load(lake: Lake, data: Path) -> None:
    print("Loading …", flush=True)
    for table in TABLES:
        lake.spark.read.parquet(str(data / f"{table}.parquet")).write.saveAsTable(table)


class Shop:
    """Makes changes, each to other orders than the ones before; new orders get keys above all others."""

    def __init__(self, lake: Lake, scale: float) -> None:
        self._lake = lake
        self._keys = int(KEYS * scale)
        self._parts = int(200_000 * scale)
        self._suppliers = max(int(10_000 * scale), 1)
        self._top = self._keys
        self._at = 0.05

    def make(self, change: Change) -> None:
        part = change.share if change.kind == "inserts" else change.share / 3
        self._insert(part)
        if change.kind == "mixed":
            self._update(part)
            self._delete(part)

    def double(self) -> None:
        """As many orders, items and offers again: the base doubles."""
        self._at = 0.0
        self._insert(1.0)

    def _some(self, share: float) -> tuple[str, str, str]:
        """Conditions for the next so many orders, their items, and offers."""
        start = self._at if self._at + share <= 1 else 0.0
        self._at = start + share
        span = f"BETWEEN {start * self._keys + 1:.0f} AND {self._at * self._keys:.0f}"
        parts = f"BETWEEN {start * self._parts + 1:.0f} AND {self._at * self._parts:.0f}"
        return f"o_orderkey {span}", f"l_orderkey {span}", f"ps_partkey {parts}"

    def _insert(self, share: float) -> None:
        orders, items, offers = self._some(share)
        self._lake.sql(
            f"""
            INSERT INTO orders SELECT o_orderkey + {self._top}, * EXCEPT (o_orderkey) FROM orders WHERE {orders};
            INSERT INTO lineitem SELECT l_orderkey + {self._top}, * EXCEPT (l_orderkey) FROM lineitem WHERE {items};
            INSERT INTO partsupp SELECT ps_partkey, ps_suppkey % {self._suppliers} + 1,
              * EXCEPT (ps_partkey, ps_suppkey) FROM partsupp WHERE {offers}
            """
        )
        self._top += self._keys

    def _update(self, share: float) -> None:
        orders, items, offers = self._some(share)
        self._lake.sql(
            f"""
            UPDATE orders SET o_totalprice = o_totalprice + 1, o_orderpriority = '1-URGENT' WHERE {orders};
            UPDATE lineitem SET l_quantity = l_quantity + 1, l_extendedprice = l_extendedprice + 100 WHERE {items};
            UPDATE partsupp SET ps_supplycost = ps_supplycost + 1, ps_availqty = ps_availqty + 1 WHERE {offers}
            """
        )

    def _delete(self, share: float) -> None:
        orders, items, offers = self._some(share)
        for table, gone in (("orders", orders), ("lineitem", items), ("partsupp", offers)):
            self._lake.sql(f"DELETE FROM {table} WHERE {gone}")
