{% macro headrace__date(year, month, day) -%}
  date '{{ modules.datetime.date(year, month, day).isoformat() }}'
{%- endmacro %}


{% macro headrace__dateadd(datepart, interval, from_date_or_timestamp) -%}
  timestampadd({{ datepart }}, cast({{ interval }} as int), {{ from_date_or_timestamp }})
{%- endmacro %}


{#- How many times a new unit begins between the two, which is what dbt counts. Spark counts whole units. -#}
{% macro headrace__datediff(first_date, second_date, datepart) -%}
  {%- if datepart | lower in ('microsecond', 'millisecond', 'second', 'minute', 'hour') -%}
  cast(timestampdiff({{ datepart }}, date_trunc('{{ datepart }}', {{ first_date }}), date_trunc('{{ datepart }}', {{ second_date }})) as bigint)
  {%- else -%}
  cast(timestampdiff({{ datepart }}, cast(date_trunc('{{ datepart }}', {{ first_date }}) as timestamp_ntz), cast(date_trunc('{{ datepart }}', {{ second_date }}) as timestamp_ntz)) as bigint)
  {%- endif -%}
{%- endmacro %}


{% macro headrace__last_day(date, datepart) -%}
  {%- if datepart | lower == 'month' -%}
  last_day(cast({{ date }} as date))
  {%- else -%}
  {{ default_last_day(date, datepart) }}
  {%- endif -%}
{%- endmacro %}


{% macro headrace__generate_series(upper_bound) %}
  select explode(sequence(1, {{ upper_bound }})) as generated_number
{% endmacro %}
