select station_id, name as station, district
from {{ ref('stations') }}
