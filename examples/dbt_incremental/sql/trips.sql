-- A batch of trips, made up from their numbers: the same numbers give the same trips.
INSERT INTO raw.trips
SELECT
  id,
  timestamp'2026-03-01 06:00:00' + make_interval(0, 0, 0, 0, 0, CAST(id * 2 AS INT), 0),
  CAST(4 + id * 7 % 41 AS INT),
  CAST(1 + id * 13 % 8 AS INT),
  CAST(1 + id * 29 % 8 AS INT),
  concat('rider ', id * 17 % 900),
  CAST(1 + 0.15 * (4 + id * 7 % 41) AS DECIMAL(10,2))
FROM range({first}, {last})
