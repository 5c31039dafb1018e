{{ config(materialized='incremental') }}

-- Only the stream: trips from before the stream was made are not in it.
select trip_id, started_at, to_station, rider, current_timestamp() as loaded_at
from {{ source('raw', 'arrivals_stream') }}
