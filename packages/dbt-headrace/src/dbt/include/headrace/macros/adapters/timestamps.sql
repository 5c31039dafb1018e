{% macro headrace__current_timestamp() %}
  current_timestamp()
{%- endmacro %}


{% macro headrace__snapshot_get_time() %}
  {{- current_timestamp() -}}
{% endmacro %}


{% macro headrace__current_timestamp_backcompat() %}
  current_timestamp()
{%- endmacro %}


{% macro headrace__current_timestamp_in_utc_backcompat() %}
  to_utc_timestamp(current_timestamp(), current_timezone())
{%- endmacro %}
