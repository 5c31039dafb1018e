"""A query that was read gives the rows that Spark gives for its text: through the algebra, and as rendered text."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame

from headrace import errors
from headrace.ivm.evaluate import Leaf, evaluate, values
from headrace.plan import catalyst
from headrace.plan.catalyst import read_query
from headrace.plan.nodes import Relation, Values, walk
from headrace.plan.query import Query, Slot
from headrace.plan.render import render, subquery
from plan.small_lake import Lake

INCREMENTAL = [
    # project, filter
    "SELECT id, x + 1 AS y FROM a WHERE s LIKE 'a!%%' ESCAPE '!'",
    "SELECT * FROM a WHERE x IN (1, 2) OR x IS NULL",
    "SELECT * EXCEPT (m, st) FROM lake.a",
    "SELECT a.id, lake.a.x, `spark_catalog`.`lake`.`a`.s FROM spark_catalog.lake.a",
    "SELECT id, 'it''s' AS q, 'back\\\\slash' AS w, '😀é' AS e, \"double\" AS d, r'raw\\n' AS r FROM a "
    "WHERE s <> 'it\\'s'",
    "SELECT '😀😀' AS u, x FROM a /* 😀 é */ WHERE s = '😀é' OR x = (1)",
    "SELECT `Weird-näme` AS `ünï code`, c.`Weird-näme` || '`' AS `b``q` FROM c",
    "SELECT dec * 2 AS d, dec / 3 AS e, CAST(dec AS int) AS i, CAST(x AS decimal(20,5)) * dec AS p, 1.10 "
    "AS k, 1e3 AS l, 5L AS n FROM a",
    "SELECT CASE WHEN x > 3 THEN 'big' WHEN x IS NULL THEN 'none' ELSE s END AS c, CASE x WHEN 1 THEN 2 "
    "END AS w FROM a",
    "SELECT if(x > 2, f, -f) AS i, coalesce(x, 0) AS o, nvl(x, 1) AS n, nullif(x, 2) AS nu, ifnull(x, 9) AS ni FROM a",
    "SELECT date_add(dt, 3) AS p, dt - INTERVAL '1' MONTH AS m, year(dt) AS y, extract(month FROM dt) AS mo, "
    "date_trunc('month', ts) AS t, trunc(dt, 'YEAR') AS tr, datediff(dt, DATE'1998-01-01') AS df, "
    "date_format(ts, 'yyyy-MM') AS fm FROM a",
    "SELECT ts + INTERVAL 2 HOURS AS later, TIMESTAMP'2024-01-01 00:00:00' AS fixed, to_date(ts) AS d, "
    "unix_timestamp(ts) AS u FROM a",
    "SELECT st.p, st.q[0].w AS w, st.q.u AS us, m['k'] AS k, arr[0] AS f FROM a WHERE size(arr) > 0",
    "SELECT struct(id, x AS xx) AS s, array(id, x) AS ar, named_struct('k', s) AS ns FROM a",
    "SELECT upper(s) AS u, substring(s, 1, 2) AS sub, s || '!' AS c, length(s) AS l, "
    "regexp_replace(s, '[a-z]+', '\\\\d') AS r, "
    "split(s, '%') AS sp, trim(BOTH 'a' FROM s) AS t, s RLIKE '^a.*' AS rl FROM a",
    "SELECT try_cast(s AS int) AS t, try_divide(id, x) AS d, hash(id, s) AS h, sha2(s, 256) AS sh, "
    "id::string AS ids FROM a",
    "SELECT id, x + 1 AS x1, x1 * 2 AS x2 FROM a",  # lateral alias
    "SELECT id, x BETWEEN 1 AND 3 AS b, x <=> NULL AS n, NOT (x > 2 AND id < 5) AS k FROM a",
    "TABLE b",
    "SELECT id FROM a ORDER BY x DESC, id",
    "FROM a |> WHERE x > 2 |> SELECT id, x",
    "SELECT id, x FROM a; -- the end",
    "SELECT /*+ REPARTITION(3) */ id FROM a",
    "SELECT transform(arr, e -> e + id) AS t, filter(arr, (e, i) -> e > 1 AND i < 2) AS f, exists(arr, e "
    "-> e IS NULL) AS x FROM a",
    "SELECT aggregate(transform(arr, e -> coalesce(e, 0)), 0, (acc, e) -> acc + e) AS s FROM a",
    # outer, semi and anti joins
    "SELECT a.id, y FROM a LEFT JOIN b ON a.id = b.id",
    "SELECT a.id, b.y FROM b RIGHT JOIN a ON a.id = b.id AND b.y > 1",
    "SELECT a.id, b.id AS bid, b.y FROM a FULL OUTER JOIN b ON a.id = b.id AND a.x < b.y",
    "SELECT a.id, c.z FROM a LEFT JOIN c ON a.id < c.z",
    "SELECT a.x, b.y, c.z FROM a LEFT JOIN b USING (id) LEFT JOIN c USING (id)",
    "SELECT id FROM a LEFT SEMI JOIN b USING (id)",
    "SELECT id FROM a LEFT ANTI JOIN b ON a.id = b.id AND a.x = b.y",
    # subqueries
    "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.id = a.id)",
    "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id = a.id AND b.y > a.x)",
    "SELECT id FROM a WHERE id IN (SELECT y FROM b)",
    "SELECT id FROM a WHERE x NOT IN (SELECT y FROM b WHERE y IS NOT NULL)",
    "SELECT id FROM a WHERE (id, x) NOT IN (SELECT id, y FROM b)",
    "SELECT id FROM a WHERE x > 5 OR id IN (SELECT y FROM b) OR EXISTS (SELECT 1 FROM c WHERE c.id = a.id)",
    "SELECT id, id IN (SELECT y FROM b) AS known FROM a",
    "WITH q AS (SELECT y AS id FROM b) SELECT id FROM a WHERE id IN (SELECT id FROM q)",
    "SELECT id FROM a WHERE id IN (SELECT id FROM b WHERE y > (SELECT avg(z) FROM c))",
    "SELECT id, (SELECT max(y) FROM dyn JOIN b USING (id)) AS m FROM a",
    "SELECT id FROM a WHERE x > (SELECT avg(y) FROM b)",
    "SELECT id, (SELECT count(*) FROM b WHERE b.id = a.id) AS n, (SELECT sum(y) FROM b WHERE b.id = a.id) AS s FROM a",
    "SELECT id FROM a WHERE x > (SELECT avg(y) FROM b WHERE b.id = a.id)",
    "SELECT s, sum(x) AS t FROM a GROUP BY s HAVING sum(x) > (SELECT max(y) FROM b)",
    "SELECT s, sum(x) / (SELECT sum(x) FROM a) AS share FROM a GROUP BY s",
    "SELECT max(x) + (SELECT min(y) FROM b) AS m, count_if(x > (SELECT avg(y) FROM b)) AS n FROM a",
    "SELECT x > (SELECT avg(y) FROM b) AS k, count(*) AS n FROM a GROUP BY x > (SELECT avg(y) FROM b)",
    "SELECT s, count(*) AS n, (SELECT max(y) FROM b) AS m FROM a GROUP BY ROLLUP (s)",
    "SELECT DISTINCT s, (SELECT max(y) FROM b) AS m FROM a",
    "SELECT a.id FROM a JOIN b ON a.id = b.id AND a.x > (SELECT max(z) FROM c)",
    "SELECT a.id, b.y FROM a FULL OUTER JOIN b ON a.id = b.id AND a.x > (SELECT max(z) FROM c)",
    "SELECT a.id FROM a LEFT ANTI JOIN b ON a.id = b.id AND b.y > (SELECT max(z) FROM c)",
    "SELECT id, (SELECT id FROM c WHERE id = 3) AS y FROM a",
    "SELECT a.id, e FROM a, LATERAL (SELECT max(y) AS e FROM b WHERE b.id = a.id)",
    # sets
    "SELECT id FROM a INTERSECT SELECT id FROM b",
    "SELECT id, s FROM a EXCEPT SELECT id, s FROM b",
    "SELECT id FROM a EXCEPT ALL SELECT id FROM b",
    "SELECT id FROM a INTERSECT ALL SELECT y FROM b",
    "SELECT id FROM a UNION SELECT y FROM b MINUS SELECT z FROM c",
    # aggregates that are computed anew
    "SELECT s, count(DISTINCT x) AS n, sum(DISTINCT id) AS t, count(DISTINCT x, id) AS p FROM a GROUP BY s",
    "SELECT count(DISTINCT x) FILTER (WHERE id > 3) AS n FROM a",
    "SELECT s, stddev(f) AS a, var_pop(f) AS b, corr(f, id) AS c, covar_pop(f, id) AS d, skewness(f) AS e, "
    "kurtosis(f) AS g, regr_slope(f, id) AS h FROM a GROUP BY s",
    "SELECT s, percentile(x, 0.5) AS p, median(x) AS m, percentile_approx(x, 0.5) AS q, "
    "percentile_cont(0.25) WITHIN GROUP (ORDER BY x) AS r, approx_count_distinct(x) AS t FROM a GROUP BY s",
    "SELECT s, max_by(id, f) AS p, min_by(id, f) AS q, bit_or(x) AS r, try_sum(x) AS t, try_avg(x) AS u "
    "FROM a GROUP BY s",
    "SELECT s, first(x) IGNORE NULLS IS NULL AS a, last(x, true) IS NULL AS b, any_value(x) IGNORE NULLS IS NULL AS c, "
    "first(x) FILTER (WHERE x > 2) IGNORE NULLS IS NULL AS d FROM a GROUP BY s",
    "SELECT id, sort_array(collect_set(x)) AS xs, sort_array(collect_list(x)) AS ys FROM a GROUP BY id",
    "SELECT p, count(*) AS n, max(q) AS q FROM (SELECT s, max_by(id, ts) FILTER (WHERE x > 0) AS p, "
    "min_by(f, dt) AS q, first(x, true) AS r, last(s) AS l, any_value(x) AS v FROM a GROUP BY s) "
    "WHERE r > 0 OR l = 'x' OR v IS NULL GROUP BY p",
    "SELECT t, n, l, count(*) AS n2 FROM (SELECT id, array_sort(collect_set(s)) AS t, size(collect_list(x)) AS n, "
    "listagg(s, ',') WITHIN GROUP (ORDER BY s DESC) AS l FROM a GROUP BY id) GROUP BY t, n, l",
    "SELECT s, x, count(*) AS n FROM a GROUP BY ROLLUP (s, x)",
    "SELECT s, x, count(*) AS n, grouping(s) AS g FROM a GROUP BY CUBE (s, x)",
    "SELECT s, x, sum(id) AS n FROM a GROUP BY GROUPING SETS ((s), (x), ())",
    "SELECT * FROM (SELECT * FROM v) PIVOT (max(x1) FOR id IN (1, 2))",
    "SELECT * FROM (SELECT id, s, x FROM a) PIVOT (sum(x) AS t, count(*) AS n FOR s IN ('it''s', 'a%b' AS b))",
    "SELECT * FROM (SELECT id, x, CAST(id AS INT) AS y FROM a) UNPIVOT (v FOR k IN (x, y))",
    # windows
    "SELECT id, row_number() OVER (PARTITION BY x ORDER BY ts) AS r FROM a",
    "SELECT id, rank() OVER w AS r, dense_rank() OVER w AS d, percent_rank() OVER w AS p, cume_dist() OVER w AS c, "
    "ntile(3) OVER (PARTITION BY x ORDER BY ts) AS n FROM a WINDOW w AS (PARTITION BY x ORDER BY id DESC NULLS LAST)",
    "SELECT ts, lag(x, 2, -1) OVER (PARTITION BY id ORDER BY ts) AS l, "
    "lead(x) OVER (PARTITION BY id ORDER BY ts) AS e, "
    "first_value(x) IGNORE NULLS OVER (PARTITION BY id ORDER BY ts) AS f, "
    "nth_value(x, 2) OVER (PARTITION BY id ORDER BY ts) AS h FROM a",
    "SELECT ts, sum(x) OVER (PARTITION BY id ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS s, "
    "avg(f) OVER (PARTITION BY id ORDER BY dt RANGE BETWEEN INTERVAL 100 DAYS PRECEDING AND CURRENT ROW) AS g, "
    "max(x) OVER (PARTITION BY id) AS m, count(*) OVER () AS n FROM a",
    "SELECT id, n FROM (SELECT id, row_number() OVER (PARTITION BY x % 2, s ORDER BY ts) AS n FROM a) WHERE n <= 2",
    "SELECT s, sum(x) AS t, rank() OVER (ORDER BY sum(x) DESC, s) AS r FROM a GROUP BY s",
    "SELECT id, ts FROM a QUALIFY row_number() OVER (PARTITION BY id ORDER BY ts DESC) = 1",
    # rows without a table
    "SELECT a.id, v FROM a JOIN (VALUES (1, 'one'), (2, NULL)) AS w(id, v) ON a.id = w.id",
    "SELECT a.id, w.* FROM a JOIN (VALUES (1L, 2S, 3Y, CAST(1.5 AS FLOAT), TIMESTAMP'1970-01-01 00:00:01')) "
    "AS w(l, s, y, f, t) ON a.id = w.l",
    "SELECT * FROM (SELECT CAST(id AS BIGINT) AS k, x FROM a) PIVOT (sum(x) FOR k IN (1, 2))",
    "SELECT * FROM (SELECT CAST(id AS FLOAT) AS k, x FROM a) PIVOT (sum(x) FOR k IN (1, 2.5, NULL))",
    "SELECT a.x, r.id AS n FROM a JOIN range(1, 9, 2) r ON a.id = r.id",
    "SELECT id FROM range(5)",
    "SELECT 1 AS one, 'x' AS s",
    "SELECT id FROM b UNION ALL SELECT 7",
    # current_date
    "SELECT id FROM a WHERE dt > current_date() - INTERVAL 7 DAYS OR s = 'current_date()'",
    "SELECT id, datediff(current_date, dt) >= 0 AS past FROM a",
    # joins
    "SELECT a.id, y FROM a JOIN b ON a.id = b.id",
    "SELECT a.id, b.y, c.z FROM a, b, c WHERE a.id = c.id AND c.z = b.y AND a.x = 1 AND a.id + b.id > c.z",
    "SELECT l.id, r.id AS other FROM a l JOIN a r ON l.x = r.x AND l.id < r.id",
    "SELECT a.id, b.s FROM a CROSS JOIN b WHERE b.y = 1",
    "SELECT a.id, b.y FROM a JOIN b ON a.x <=> b.y AND a.id % 3 = b.id % 3",
    "SELECT id, x, y FROM a JOIN b USING (id)",
    "SELECT id, x, y, a.s AS sa FROM a NATURAL JOIN (SELECT id, y FROM b)",
    "SELECT /*+ BROADCAST(b) */ a.id, b.y FROM a JOIN b ON a.id = b.id OR a.x = b.y",
    # aggregates
    "SELECT s, count(*) AS n, count(x) AS nx, sum(x) AS sx, avg(dec) AS ad, min(dt) AS lo, max(ts) AS hi "
    "FROM a GROUP BY s",
    "SELECT count(*) AS n, sum(dec) AS d, max(x) AS m FROM a WHERE id > 1000",
    "SELECT x + 1 AS k, sum(dec) + 1 AS p, sum(f) / count(*) AS q, sum(dec) AS again FROM a GROUP BY x + 1",
    "SELECT upper(s) AS u, count(1) AS n FROM a GROUP BY upper(s) HAVING count(*) > 3 AND max(x) IS NOT "
    "NULL AND upper(s) > 'A'",
    "SELECT id, sum(x) FILTER (WHERE x > 2) AS f, count_if(x > 2) AS c, count_if(x > 2) FILTER (WHERE id "
    "< 9) AS cf, count(x, s) AS two FROM a GROUP BY id",
    "SELECT id, bool_and(x > 1) AS al, bool_or(x > 1) AS an, every(x < 9) AS e, max(DISTINCT x) AS md, "
    "mean(x) AS me FROM a GROUP BY id",
    "SELECT DISTINCT x, s FROM a",
    "SELECT DISTINCT id % 3 AS k FROM a WHERE x > 1",
    "SELECT count(*) AS groups, max(n) AS most FROM (SELECT id, count(*) AS n FROM a GROUP BY id)",
    "SELECT year(dt) AS y, sum(n) AS s FROM (SELECT dt, count(*) AS n FROM a GROUP BY dt) GROUP BY ALL",
    "SELECT x, id, count(*) AS n FROM a GROUP BY 1, 2",
    "SELECT sum(CASE WHEN x > 2 THEN dec * (1 - dec / 100) ELSE 0 END) / sum(dec) AS ratio FROM a",
    "SELECT st.p, count(*) AS n FROM a GROUP BY st.p",
    "SELECT s, sum(DISTINCT_X) AS d FROM (SELECT DISTINCT s, x AS DISTINCT_X FROM a) GROUP BY s",
    # unions
    "SELECT id, x FROM a UNION ALL SELECT id, y FROM b",
    "SELECT id FROM a UNION SELECT y FROM b ORDER BY 1",
    "SELECT id, dec FROM a UNION ALL SELECT y, x FROM (SELECT y, y AS x FROM b) UNION ALL SELECT id, id FROM a",
    "SELECT a.id, y FROM a JOIN b ON a.id = b.id UNION ALL SELECT c.id, z FROM c JOIN a ON c.id = a.id",
    "SELECT k, count(*) AS n FROM (SELECT id AS k FROM a UNION ALL SELECT id FROM a) GROUP BY k",
    # generators
    "SELECT id, explode(arr) AS e FROM a",
    "SELECT id, explode_outer(arr) AS e FROM a",
    "SELECT id, posexplode(arr) AS (p, e) FROM a WHERE id > 2",
    "SELECT id, e + 1 AS e1, count(*) AS n FROM a LATERAL VIEW explode(arr) q AS e WHERE e > 1 GROUP BY id, e",
    "SELECT id, p, e FROM a LATERAL VIEW OUTER posexplode(arr) q AS p, e",
    "SELECT id, u, w FROM a LATERAL VIEW inline(st.q) q AS u, w",
    "SELECT id, k, v FROM a LATERAL VIEW explode(m) q AS k, v",
    "SELECT id, stack(2, x, 'x', id, 'id') AS (v, n) FROM a",
    "SELECT id, json_tuple('{\"p\": 1}', 'p', 'q') AS (p, q) FROM a",
    # CTEs and views
    "WITH a AS (SELECT * FROM a WHERE x > 1) SELECT id, x FROM a",
    "WITH q AS (SELECT id, count(*) AS n FROM a GROUP BY id) SELECT q1.id, q2.n + 1 AS m FROM q q1 JOIN "
    "q q2 ON q1.id = q2.id WHERE q1.n > 2",
    "WITH t AS (WITH t AS (SELECT id FROM b) SELECT id FROM t) SELECT t.id, a.x FROM t JOIN a ON t.id = a.id",
    "WITH a AS (SELECT 1 AS id) SELECT id, x FROM lake.a",  # a full name is never a CTE
    "SELECT q.id FROM (a) AS q JOIN (dyn) AS r ON q.id = r.id",
    "FROM b SELECT id, y WHERE y > 1",
    "(SELECT id FROM a) UNION ALL (SELECT id FROM v)",
    "SELECT /* FROM b */ 'FROM c' AS t, `id` FROM -- a\n `lake` . `a`",
    "SELECT v.id, x1, `the id`, n FROM v JOIN vv ON v.id = vv.`the id`",
    "SELECT * FROM lake.vv AS w(i, m) WHERE m > 1",
    "SELECT id, y, s FROM vstar",
    "SELECT dyn.id, total, x FROM dyn JOIN a ON a.id = dyn.id",
    "SELECT l.total, r.id FROM lake.dyn l JOIN dyn AS r ON l.id = r.id",
    "WITH d AS (SELECT * FROM dyn) SELECT l.id, r.total FROM d l JOIN d r ON l.id = r.id JOIN vdyn ON vdyn.id = r.id",
    # TPC-H shapes
    """SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
         sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
         sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, avg(l_quantity) AS avg_qty,
         avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count(*) AS count_order
       FROM lineitem WHERE l_shipdate <= date '1998-12-01' - interval '90' day
       GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
    """SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
       FROM customer, orders, lineitem
       WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
         AND o_orderdate < date '1995-03-15' AND l_shipdate > date '1995-03-15'
       GROUP BY l_orderkey, o_orderdate, o_shippriority""",
    """SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
       FROM customer, orders, lineitem, supplier, nation, region
       WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
         AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
         AND o_orderdate >= date '1994-01-01' AND o_orderdate < date '1994-01-01' + interval '1' year
       GROUP BY n_name ORDER BY revenue DESC""",
    """SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
       WHERE l_shipdate >= date '1994-01-01' AND l_shipdate < date '1994-01-01' + interval '1' year
         AND l_discount BETWEEN .06 - 0.01 AND .06 + 0.01 AND l_quantity < 24""",
    """SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name
       FROM customer, orders, lineitem, nation
       WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_returnflag = 'R' AND c_nationkey = n_nationkey
       GROUP BY c_custkey, c_name, c_acctbal, n_name""",
]

FULL = [
    ("SELECT id FROM a ORDER BY id LIMIT 3", "LIMIT inside the query, or without an ORDER BY over result columns"),
    ("SELECT id FROM a OFFSET 1000", "OFFSET"),
    ("SELECT a.id, (SELECT y FROM b WHERE b.id = a.id) AS y FROM a WHERE id > 100",
     "correlated scalar subquery that may return several rows"),
    ("SELECT id, (SELECT map(id, z) FROM c WHERE id = 3) AS y FROM a", "scalar subquery that may return several rows"),
    ("SELECT id, sum(x) + (SELECT min(y) FROM b) AS m, id IN (SELECT y FROM b) AS n FROM a GROUP BY id",
     "subqueries of several kinds in the SELECT list of an aggregation"),
    ("SELECT id, (SELECT coalesce(sum(y), (SELECT max(x) FROM a)) FROM b WHERE b.id = a.id) AS m FROM a",
     "subqueries of several kinds in the SELECT list of an aggregation"),
    ("SELECT id, histogram_numeric(x, 2) AS f FROM a GROUP BY id HAVING count(*) < 0",
     "aggregate function histogram_numeric"),
    ("SELECT id, max_by(x, ts, 2) AS f FROM a GROUP BY id HAVING count(*) < 0", "max_by(value, by, n)"),
    ("SELECT m, count(*) AS n FROM a GROUP BY m", "GROUP BY or DISTINCT on a column of type map<string, int>"),
    ("WITH RECURSIVE r(n) AS (SELECT min(id) FROM a UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r",
     "WITH RECURSIVE"),
    ("SELECT TRANSFORM (id) USING 'cat' AS (id INT) FROM b", "TRANSFORM … USING"),
    ("SELECT id, u FROM a LATERAL VIEW OUTER stack(1, x) s AS u", "LATERAL VIEW OUTER stack"),
    ("SELECT s COLLATE UNICODE_CI AS c FROM b", "string with a collation"),
    ("SELECT x, session_window(ts, '5 minutes').start AS st, count(*) AS n FROM a GROUP BY x, "
     "session_window(ts, '5 minutes')", "session_window"),
    ("SELECT max(n) AS m FROM (SELECT id, count(*) AS n FROM a GROUP BY id, session_window(ts, '5 seconds'))",
     "session_window"),
    ("SELECT w, count(*) AS n FROM (SELECT DISTINCT session_window(ts, '5 seconds') AS w, x FROM a) GROUP BY w",
     "session_window"),
    ("SELECT id, count(*) OVER (PARTITION BY session_window(ts, '5 seconds')) AS n FROM a", "session_window"),
    ("SELECT id FROM b WHERE y IN (SELECT count(*) FROM a GROUP BY session_window(ts, '5 seconds'))", "session_window"),
    ("SELECT id FROM a WHERE CAST(x AS DOUBLE) NOT IN (SELECT CAST(y AS DOUBLE) FROM b)",
     "NOT IN over values of type double"),
    ("SELECT id, array(CAST(x AS FLOAT)) NOT IN (SELECT array(CAST(y AS FLOAT)) FROM b) AS n FROM a",
     "NOT IN over values of type array<float>"),
]  # fmt: skip
REFUSED: list[tuple[str, type[errors.HeadraceError], tuple[int, int] | None, str]] = [
    ("SELEC id FROM a", errors.SyntaxFault, (1, 1), "SELEC"),
    ("SELECT id\nFROM a b c", errors.SyntaxFault, (2, 10), "c"),
    ("INSERT INTO b SELECT * FROM b", errors.SyntaxFault, (1, 1), "not a query"),
    ("WITH q AS (SELECT 1) INSERT INTO b SELECT 1, 2, '', 3", errors.SyntaxFault, (1, 1), "not a query"),
    ("SHOW TABLES", errors.SyntaxFault, (1, 1), "not a query"),
    ("DROP TABLE b", errors.SyntaxFault, (1, 1), "not a query"),
    ("SELECT 1 AS x FROM a; SELECT 2", errors.SyntaxFault, (1, 23), "SELECT"),
    ("SELECT '😀',\n id FROM custome", errors.NotFound, (2, 10), "custome"),
    ("SELECT 1 AS o FROM nowhere.t", errors.NotFound, (1, 20), "nowhere"),
    (
        "SELECT current_date, curdate() AS today FROM (SELECT id AS current_date FROM a)",
        errors.NotAllowed,
        None,
        "back-quotes",
    ),
    ("SELECT id current_date, current_date() AS today FROM a", errors.NotAllowed, None, "back-quotes"),
    ("SELECT id FROM plain", errors.NotAllowed, (1, 16), "parquet table"),
    ("SELECT one FROM temp", errors.NotAllowed, (1, 17), "temporary view"),
    ("SELECT * FROM parquet.`/x`", errors.NotAllowed, (1, 15), "names files"),
    ("SELECT * FROM delta.`/x`", errors.NotAllowed, (1, 15), "names files"),
    ("SELECT id FROM a VERSION AS OF 0", errors.NotAllowed, None, "fixed version"),
    ("SELECT id FROM a TIMESTAMP AS OF '2024-01-01'", errors.NotAllowed, None, "fixed version"),
    ("SELECT id FROM STREAM(a)", errors.NotAllowed, None, "STREAM"),
    ("SELECT id FROM a WITH (`versionAsOf` = 0)", errors.NotAllowed, (1, 16), "Options"),
    ("SELECT nope FROM a", errors.QueryFailed, (1, 8), "UNRESOLVED_COLUMN"),
    ("SELECT\n  x + arr AS q FROM a", errors.QueryFailed, (2, 3), "DATATYPE_MISMATCH"),
    ("SELECT x, count(*) AS n FROM a", errors.QueryFailed, (1, 1), "GROUP BY"),
    ("SELECT id, id FROM a", errors.QueryFailed, None, "two columns"),
    ("SELECT id, x AS ID FROM a", errors.QueryFailed, None, "two columns"),
    ("SELECT id AS __hr_x FROM a", errors.NotAllowed, None, "__hr_"),
    ("SELECT NULL AS n FROM a", errors.NotAllowed, None, "void"),
    ("SELECT array(struct(ts - ts AS i)) AS q FROM a", errors.NotAllowed, None, "interval"),
    ("SELECT id, '😀' AS u, Rand(5) AS r FROM a", errors.NonDeterministic, (1, 22), "Rand()"),
    ("SELECT id FROM a WHERE ts < now()", errors.NonDeterministic, (1, 29), "now()"),
    ("SELECT current_timestamp AS t FROM a", errors.NonDeterministic, (1, 8), "current_timestamp"),
    ("SELECT unix_timestamp() AS t FROM a", errors.NonDeterministic, (1, 8), "unix_timestamp"),
    ("SELECT uuid() AS t FROM a", errors.NonDeterministic, (1, 8), "uuid"),
    ("SELECT current_user() AS t FROM a", errors.NonDeterministic, (1, 8), "current_user"),
    ("SELECT concat('version() is ', version()) AS t FROM a", errors.NonDeterministic, (1, 32), "version()"),
    ("SELECT current_database() AS t FROM a", errors.NonDeterministic, (1, 8), "current_database"),
    ("SELECT input_file_name() AS t FROM a", errors.NonDeterministic, (1, 8), "input_file_name"),
    ("SELECT _metadata.file_path AS t FROM a", errors.NonDeterministic, None, "_metadata"),
    ("SELECT monotonically_increasing_id() AS t FROM a", errors.NonDeterministic, (1, 8), "monotonically"),
    ("SELECT id FROM a WHERE x > (SELECT max(y) FROM b WHERE rand() > y)", errors.NonDeterministic, (1, 56), "rand()"),
    ("SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE uuid() = s)", errors.NonDeterministic, (1, 54), "uuid()"),
    ("WITH q AS (SELECT id, rand() AS r FROM a) SELECT id, r FROM q", errors.NonDeterministic, (1, 23), "rand()"),
    ("SELECT id, r FROM vrand", errors.NonDeterministic, None, "in the view lake.vrand"),
    ("SELECT id FROM a TABLESAMPLE (10 PERCENT)", errors.NonDeterministic, None, "TABLESAMPLE"),
    ("SELECT id FROM (SELECT * FROM a TABLESAMPLE (10 ROWS))", errors.NonDeterministic, None, "TABLESAMPLE"),
    ("SELECT shake(id) AS t FROM a", errors.NonDeterministic, (1, 8), "shake()"),
    ("SELECT id, limit_ AS t FROM a", errors.NotAllowed, (1, 12), "limit_ is a variable"),
    ("SELECT reader() AS t FROM b", errors.NotAllowed, None, "through a function"),
    ("SELECT lake.dyn.total FROM dyn", errors.NotAllowed, None, "not with its schema"),
]


def rows(frame: DataFrame) -> Counter[str]:
    """The rows as a bag; floats to nine digits, since sums may be added in another order."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return f"{value:.9g}"
        return [plain(each) for each in value] if isinstance(value, list | tuple) else value

    return Counter(repr(plain(list(row))) for row in frame.collect())


def read(lake: Lake, text: str) -> Query:
    return read_query(lake.spark, text, locate=lake.locate)


def through_algebra(lake: Lake, query: Query) -> DataFrame:
    def leaf(relation: Leaf) -> DataFrame:
        if isinstance(relation, Values):
            return values(lake.spark, relation)
        source = query.sources[relation.source]
        table = lake.spark.table(f"{source.schema_name}.{source.table}")
        return table.selectExpr(*(f"`{own}` AS {column.name}" for own, column in relation.columns))

    assert query.plan is not None, query.unsupported
    frame = evaluate(query.plan.root, leaf)
    return frame.selectExpr(*(f"{column.name} AS `{name.replace('`', '``')}`" for name, column in query.plan.columns))


def as_rendered(lake: Lake, query: Query) -> DataFrame:
    def table_at(slot: Slot) -> str:
        source = query.sources[slot.source]
        if source.kind == "table":
            return f"{slot.spark_name} VERSION AS OF {2 if source.table == 'b' else 1}"
        return subquery(f"SELECT id, total FROM delta.`{source.path}` VERSION AS OF 0", slot.alias)

    return lake.spark.sql(render(query.bound, table_at))


@pytest.mark.parametrize("text", INCREMENTAL)
def test_incremental(lake: Lake, text: str) -> None:
    query = read(lake, text)
    expected = lake.spark.sql(text)
    algebra = through_algebra(lake, query)
    assert [(field.name, field.dataType) for field in algebra.schema] == [
        (field.name, field.dataType) for field in expected.schema
    ]
    assert [column.name for column in query.columns] == expected.columns
    assert rows(algebra) == rows(expected)
    # A union's columns are those of its first input; a LATERAL subquery reads its outer table once more.
    if "UNION" not in text and "LATERAL (" not in text:
        names = [column.name for node in walk(query.plan.root) if isinstance(node, Relation) for column in node.output]  # type: ignore[union-attr]
        assert len(set(names)) == len(names)
    rendered = as_rendered(lake, query)
    assert rendered.columns == expected.columns
    assert rows(rendered) == rows(expected)
    assert Query.model_validate_json(query.model_dump_json()) == query


@pytest.mark.parametrize(("text", "reason"), FULL)
def test_full_with_a_reason(lake: Lake, text: str, reason: str) -> None:
    query = read(lake, text)
    assert query.plan is None
    assert query.unsupported
    assert query.unsupported == reason
    assert rows(as_rendered(lake, query)) == rows(lake.spark.sql(text))


@pytest.fixture(scope="module")
def session_things(lake: Lake) -> None:
    lake.spark.udf.register("shake", _shake())
    lake.spark.sql("DECLARE OR REPLACE VARIABLE limit_ INT DEFAULT 5")
    lake.spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION reader() RETURNS INT RETURN SELECT max(id) FROM lake.a")


def _shake() -> Any:
    from pyspark.sql.functions import udf

    return udf(lambda value: value, "int").asNondeterministic()


@pytest.mark.parametrize(("text", "error", "position", "words"), REFUSED)
def test_refused(
    lake: Lake,
    session_things: None,
    text: str,
    error: type[errors.HeadraceError],
    position: tuple[int, int] | None,
    words: str,
) -> None:
    with pytest.raises(error) as caught:
        read(lake, text)
    assert words in str(caught.value)
    assert "== SQL" not in str(caught.value)
    assert "SQLSTATE" not in str(caught.value)
    if position is not None:
        assert caught.value.position == errors.Position(*position)


def test_rendered_at_an_old_version(lake: Lake) -> None:
    query = read(lake, "SELECT count(*) AS n, max(q.x1) AS m FROM v AS q")
    text = render(query.bound, lambda slot: f"{slot.spark_name} VERSION AS OF 0")
    assert lake.spark.sql(text).collect()[0].n == 0


def test_suggests_a_table(lake: Lake) -> None:
    with pytest.raises(errors.NotFound) as caught:
        read(lake, "SELECT 1 AS one FROM custome")
    assert caught.value.hint == "Did you mean customer?"


def test_one_source_for_two_readings(lake: Lake) -> None:
    query = read(lake, "SELECT l.id FROM a l JOIN a r ON l.id = r.id JOIN v ON v.id = l.id")
    assert [source.table for source in query.sources] == ["a"]


def test_dynamic_table_is_one_leaf(lake: Lake) -> None:
    query = read(lake, "SELECT id, total FROM vdyn")
    assert query.plan is not None
    leaves = [node for node in walk(query.plan.root) if isinstance(node, Relation)]
    assert [[own for own, _ in leaf.columns] for leaf in leaves] == [["id", "total"]]
    assert [source.kind for source in query.sources] == ["dynamic"]


def test_columns_that_nothing_needs_are_not_read(lake: Lake) -> None:
    query = read(lake, "SELECT count(*) AS n FROM a JOIN b ON a.id = b.id WHERE a.x > 1")
    assert query.plan is not None
    leaves = [node for node in walk(query.plan.root) if isinstance(node, Relation)]
    assert [[own for own, _ in leaf.columns] for leaf in leaves] == [["id", "x"], ["id"]]


def test_the_inputs_of_a_long_union_stand_beside_one_another(lake: Lake) -> None:
    query = read(lake, " UNION ALL ".join(f"SELECT {number} AS n, id FROM b" for number in range(120)))
    assert query.plan is not None
    assert len(query.plan.root.children) == 120
    assert Query.model_validate_json(query.model_dump_json()) == query
    names = through_algebra(lake, query).groupBy("n").count().collect()
    assert Counter(dict(names)) == Counter(dict.fromkeys(range(120), 25))


def test_a_plan_that_is_nested_too_deep_to_be_kept(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        f"SELECT b.id FROM b {' '.join(f'LEFT SEMI JOIN c AS c{place} ON b.id = c{place}.id' for place in range(30))}"
    )
    assert read(lake, text).unsupported is None
    monkeypatch.setattr(catalyst, "_AROUND", 180)
    query = read(lake, text)
    assert (query.plan, query.unsupported) == (None, "operators nested too deep")
    monkeypatch.setattr(catalyst, "_AROUND", 199)
    with pytest.raises(errors.QueryFailed, match="nested too deep"):
        read(lake, "SELECT id FROM v")


def test_current_date_is_noted(lake: Lake) -> None:
    assert read(lake, "SELECT id FROM a WHERE dt > current_date").uses_current_date
    assert not read(lake, "SELECT id FROM a").uses_current_date


def test_resolved_text(lake: Lake) -> None:
    text = "WITH q AS (SELECT '😀' AS u FROM a) SELECT u FROM q, lake.b AS bb, v /* a */"
    expected = "WITH q AS (SELECT '😀' AS u FROM home.lake.a) SELECT u FROM q, home.lake.b AS bb, lake.v /* a */"
    assert read(lake, text).resolved_text == expected


def test_names_of_other_workspaces(lake: Lake) -> None:
    def database_of(workspace: str, schema: str) -> str | None:
        return schema.lower() if workspace.lower() == "home" else None

    text = "SELECT q.id FROM home.lake.a AS q WHERE nope > 1"
    with pytest.raises(errors.QueryFailed) as caught:
        read_query(lake.spark, text, locate=lake.locate, database_of=database_of)
    assert caught.value.position == errors.Position(1, text.index("nope") + 1)
    query = read_query(lake.spark, "SELECT a.id FROM home.lake.a", locate=lake.locate, database_of=database_of)
    assert rows(as_rendered(lake, query)) == rows(lake.spark.sql("SELECT id FROM lake.a"))
    with pytest.raises(errors.NotFound):
        read(lake, "SELECT id FROM elsewhere.lake.a")
    text = (
        "SELECT home.lake.a.id, 'home.lake.a.id' AS u, Home.LAKE.`a`.st.p FROM home.lake.a "
        "JOIN b ON b.id = home.lake.a.x WHERE lake.a.x > 0"
    )
    query = read_query(lake.spark, text, locate=lake.locate, database_of=database_of)
    same = "SELECT a.id, 'home.lake.a.id' AS u, a.st.p FROM lake.a JOIN b ON b.id = a.x WHERE a.x > 0"
    assert query.text == text
    assert rows(through_algebra(lake, query)) == rows(as_rendered(lake, query)) == rows(lake.spark.sql(same))
    query = read_query(lake.spark, "SELECT home.lake.b.* FROM b", locate=lake.locate, database_of=database_of)
    assert rows(as_rendered(lake, query)) == rows(lake.spark.sql("SELECT * FROM b"))
    text = "SELECT x.lake.a.p FROM (SELECT named_struct('a', named_struct('p', id)) AS lake FROM home.lake.a) AS x"
    query = read_query(lake.spark, text.replace("x", "home"), locate=lake.locate, database_of=database_of)
    assert rows(as_rendered(lake, query)) == rows(lake.spark.sql("SELECT id FROM a"))
    text = "SELECT home.lake.a.id, nope FROM home.lake.a"
    with pytest.raises(errors.QueryFailed) as caught:
        read_query(lake.spark, text, locate=lake.locate, database_of=database_of)
    assert caught.value.position == errors.Position(1, text.index("nope") + 1)


def test_a_view_made_under_other_settings(lake: Lake) -> None:
    lake.spark.sql("SET spark.sql.ansi.enabled = false")
    lake.spark.sql("CREATE VIEW lenient AS SELECT CAST(s AS int) AS i FROM a")
    lake.spark.sql("RESET spark.sql.ansi.enabled")
    with pytest.raises(errors.NotAllowed, match=r"spark\.sql\.ansi\.enabled"):
        read(lake, "SELECT i FROM lenient")
