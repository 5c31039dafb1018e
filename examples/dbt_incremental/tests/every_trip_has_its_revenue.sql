-- The dynamic tables are refreshed before dbt says that they are built: a test sees what the models say.
select enriched.revenue, counted.revenue as counted
from (select sum(fare) as revenue from {{ ref('trips_enriched') }}) as enriched
cross join (select sum(revenue) as revenue from {{ ref('district_revenue') }}) as counted
where enriched.revenue <> counted.revenue
