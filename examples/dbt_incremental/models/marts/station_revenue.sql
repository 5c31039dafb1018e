{{
  config(
    materialized='dynamic_table',
    refresh_vc='default',
    refresh_interval='5 MINUTE'
  )
}}

select
  trip_date,
  station,
  district,
  count(*) as trips,
  sum(fare) as revenue,
  max(minutes) as longest
from {{ ref('trips_enriched') }}
group by trip_date, station, district
