CREATE SCHEMA IF NOT EXISTS raw COMMENT 'As it arrives';

CREATE TABLE raw.trips (
  trip_id BIGINT,
  started_at TIMESTAMP,
  minutes INT,
  from_station INT,
  to_station INT,
  rider STRING,
  fare DECIMAL(10,2)
) TBLPROPERTIES ('change_tracking'='true');
