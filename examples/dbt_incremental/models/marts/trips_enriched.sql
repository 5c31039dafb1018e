{{ config(materialized='incremental') }}

-- depends_on: {{ source('raw', 'trips_stream') }}
-- The first build takes every trip there is. Every run after it takes the trips that came since, from the stream: the
-- stream's offset moves with the commit of this table, so no trip is taken twice and none is lost.
select
  trips.trip_id,
  trips.started_at,
  cast(trips.started_at as date) as trip_date,
  hour(trips.started_at) as trip_hour,
  trips.minutes,
  stations.station,
  stations.district,
  trips.rider,
  trips.fare,
  current_timestamp() as loaded_at
from
  {% if is_incremental() %}
  {{ source('raw', 'trips_stream') }} as trips
  {% else %}
  {{ source('raw', 'trips') }} as trips
  {% endif %}
  join {{ ref('station_names') }} as stations on stations.station_id = trips.from_station
