{{ config(materialized='dynamic_table', refresh_interval='5 MINUTE') }}

select district, sum(trips) as trips, sum(revenue) as revenue
from {{ ref('station_revenue') }}
group by district
