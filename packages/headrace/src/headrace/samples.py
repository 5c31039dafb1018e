"""Made-up e-commerce events: the same every time, any number of them, made by Spark itself.

Every value is a hash of the seed and of what it belongs to. An event's number decides its session; the session decides
the user and the few products looked at; the product decides its category, brand and base price. So rows 1,000 to 2,000
are the same rows whether they are made alone or with a million others.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from headrace.names import quote_text

if TYPE_CHECKING:
    from headrace.client.lake import RemoteLake
    from headrace.engine import Lake

SAMPLE_WORKSPACE = "headrace_sample_data"
SAMPLE_SCHEMA = "ecommerce_events_history"
SAMPLE_TABLE = "ecommerce_events_multicategorystore_live"
SAMPLE_NAME = f"{SAMPLE_WORKSPACE}.{SAMPLE_SCHEMA}.{SAMPLE_TABLE}"

SEED = 2024
FIRST_EVENT = datetime(2024, 11, 1, tzinfo=timezone.utc)
GAP_SECONDS = 5.0

COLUMNS = """event_time TIMESTAMP,
  event_type STRING,
  product_id STRING,
  category_id STRING,
  category_code STRING,
  brand STRING,
  price DECIMAL(10,2),
  user_id STRING,
  user_session STRING"""

_USERS = 20_000
_PRODUCTS = 5_000
_BLOCK_EVENTS = 400
_BLOCK_SESSIONS = 80

# Code, share of the products in per cent, cheapest and dearest, brands. No code: the shop never filled it in.
_CATEGORIES: tuple[tuple[str | None, int, int, int, tuple[str, ...]], ...] = (
    ("electronics.smartphone", 14, 90, 1200, ("norda", "pelikan", "quanta", "sevenly", "tamarind")),
    ("electronics.audio.headphone", 10, 10, 320, ("aurel", "norda", "pelikan", "wavefold")),
    ("electronics.video.tv", 6, 150, 1900, ("brightside", "norda", "quanta")),
    ("computers.notebook", 8, 280, 2400, ("harbor", "kestrel", "quanta", "tamarind")),
    ("computers.peripherals.mouse", 6, 5, 110, ("harbor", "kestrel", "tick")),
    ("appliances.kitchen.kettle", 7, 12, 140, ("hearth", "moorland", "steamline")),
    ("appliances.environment.vacuum", 6, 40, 620, ("moorland", "swirl")),
    ("apparel.shoes.sneakers", 10, 20, 210, ("longmile", "pace", "terra")),
    ("apparel.shirt", 6, 8, 75, ("loom", "terra")),
    ("furniture.bedroom.bed", 5, 120, 1500, ("fjordwood", "nestor")),
    ("kids.toys", 7, 4, 95, ("bauklotz", "tick")),
    ("sport.bicycle", 3, 180, 2100, ("longmile", "spoke")),
    (None, 12, 3, 400, ("assorted", "norda", "terra")),
)


@dataclass(frozen=True)
class SampleData:
    """The sample table after `create_sample_data`: its name, rows added by this call, rows in all."""

    table: str
    added: int
    total: int


def create_sample_data(lake: Lake | RemoteLake, rows: int, *, seed: int = SEED) -> SampleData:
    """Make sure that the sample table exists and has at least this many events."""
    lake.sql(f"CREATE SCHEMA IF NOT EXISTS {SAMPLE_WORKSPACE}.{SAMPLE_SCHEMA}")
    create_events_table(lake, SAMPLE_NAME)
    there = _count(lake, SAMPLE_NAME)
    missing = max(0, rows - there)
    if missing:
        append_events(lake, SAMPLE_NAME, missing, first=there, seed=seed)
    return SampleData(SAMPLE_NAME, missing, there + missing)


def create_events_table(lake: Lake | RemoteLake, table: str) -> None:
    """An empty table for events, unless it is there."""
    lake.sql(
        f"CREATE TABLE IF NOT EXISTS {table} (\n  {COLUMNS}\n) "
        "COMMENT 'Views, carts and purchases in a made-up shop' TBLPROPERTIES ('change_tracking'='true')"
    )


def append_events(
    lake: Lake | RemoteLake,
    table: str,
    rows: int,
    *,
    first: int | None = None,
    seed: int = SEED,
    begins: datetime = FIRST_EVENT,
    gap_seconds: float = GAP_SECONDS,
) -> int:
    """Append events number `first` and following (by default those after the rows there) in one commit."""
    if first is None:
        first = _count(lake, table)
    query = events_query(first, rows, seed=seed, begins=begins, gap_seconds=gap_seconds)
    lake.sql(f"INSERT INTO {table}\n{query}")
    return rows


def append_live_events(
    lake: Lake | RemoteLake,
    table: str,
    rows: int,
    *,
    first: int,
    seconds: float,
    now: datetime | None = None,
    seed: int = SEED,
) -> int:
    """Append events that happened in the last `seconds` seconds."""
    now = now or datetime.now(timezone.utc)
    gap = seconds / rows
    begins = now - timedelta(seconds=gap * (first + rows))
    return append_events(lake, table, rows, first=first, seed=seed, begins=begins, gap_seconds=gap)


def events_query(
    first: int, rows: int, *, seed: int = SEED, begins: datetime = FIRST_EVENT, gap_seconds: float = GAP_SECONDS
) -> str:
    """The SELECT that makes events number `first` to `first + rows - 1`.

    Event n happens n gaps after `begins`, give or take most of a gap.
    """

    def share(of: str, about: str) -> str:
        """A number from 0 up to 1 that is fixed for these columns."""
        return f"(pmod(xxhash64({of}, {seed}L, {quote_text(about)}), 1000003) / 1000003D)"

    def pick(of: str, about: str, count: int) -> str:
        return f"pmod(xxhash64({of}, {seed}L, {quote_text(about)}), {count}L)"

    start = f"{begins.astimezone(timezone.utc).timestamp():.6f}D"
    categories = ",\n    ".join(
        f"named_struct('code', {quote_text(code) if code else 'CAST(NULL AS STRING)'}, 'until', {until}, "
        f"'low', {low}D, 'high', {high}D, 'brands', array({', '.join(map(quote_text, brands))}))"
        for (code, _, low, high, brands), until in zip(_CATEGORIES, _running_shares(), strict=True)
    )
    return f"""SELECT
  CAST(timestamp_micros(CAST(round(({start} + (n + {share("n", "moment")} * 0.9) * {gap_seconds!r}D) * 1000) AS BIGINT)
    * 1000) AS TIMESTAMP) AS event_time,
  CASE WHEN act < 0.80 THEN 'view' WHEN act < 0.92 THEN 'add_to_cart' ELSE 'purchase' END AS event_type,
  CAST(1000000 + product * 17 AS STRING) AS product_id,
  CAST(2053013550000000000 + number * 104729 AS STRING) AS category_id,
  category.code AS category_code,
  CASE WHEN {share("product", "brand known")} < 0.88
    THEN element_at(category.brands, CAST(1 + {pick("product", "brand", 840)} % size(category.brands) AS INT))
  END AS brand,
  CAST(CASE WHEN {share("n", "price known")} < 0.005 THEN 0
    ELSE (category.low + (category.high - category.low) * pow({share("product", "price")}, 2))
      * (1 - 0.05 * {pick("product, n DIV 20000", "discount", 4)})
  END AS DECIMAL(10,2)) AS price,
  CAST(500000000 + CAST({_USERS} * pow({share("session", "user")}, 2) AS BIGINT) AS STRING) AS user_id,
  regexp_replace(md5(concat({quote_text(f"{seed}/")}, session)),
    '^(.{{8}})(.{{4}})(.{{4}})(.{{4}})', '$1-$2-$3-$4-') AS user_session
FROM (
  SELECT n, act, session, product, number, element_at(categories, CAST(number AS INT)) AS category
  FROM (
    SELECT *, size(filter(categories, c -> c.until <= {pick("product", "category", 100)})) + 1 AS number
    FROM (
      SELECT *,
        CAST({_PRODUCTS} * pow({share(f"session, {pick('n', 'choice', 3)}", "product")}, 2) AS BIGINT) AS product,
        array(
    {categories}
        ) AS categories
      FROM (
        SELECT id AS n, {share("id", "act")} AS act,
          id DIV {_BLOCK_EVENTS} * {_BLOCK_SESSIONS} + {pick("id", "session", _BLOCK_SESSIONS)} AS session
        FROM range({first}, {first + rows})
      )
    )
  )
)"""


def _running_shares() -> list[int]:
    total = 0
    shares = []
    for _, share, *_ in _CATEGORIES:
        total += share
        shares.append(total)
    return shares


def _count(lake: Lake | RemoteLake, table: str) -> int:
    return int(lake.sql(f"SELECT count(*) FROM {table}").rows[0][0])
