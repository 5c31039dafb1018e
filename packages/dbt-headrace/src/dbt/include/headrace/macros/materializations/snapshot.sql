{% macro headrace__snapshot_hash_arguments(args) %}
  md5(concat_ws('|'{% for arg in args %}, coalesce(cast({{ arg }} as string), ''){% endfor %}))
{% endmacro %}


{% macro headrace__snapshot_string_as_time(timestamp) %}
  {%- do return("timestamp '" ~ timestamp ~ "'") -%}
{% endmacro %}


{#- The new state of the rows as a view, which is dropped however the snapshot ends. -#}
{% macro headrace__build_snapshot_staging_table(strategy, sql, target_relation) %}
  {% set temp_relation = make_temp_relation(target_relation) %}
  {% do adapter.drop_leftovers(temp_relation) %}
  {% call statement('build_snapshot_staging_relation') %}
    {{ headrace__create_view_as(temp_relation, snapshot_staging_table(strategy, sql, target_relation), bare=true) }}
  {% endcall %}
  {% do return(temp_relation) %}
{% endmacro %}


{% macro build_snapshot_staging_table(strategy, sql, target_relation) %}
  {% do return(headrace__build_snapshot_staging_table(strategy, sql, target_relation)) %}
{% endmacro %}


{% macro headrace__create_columns(relation, columns) %}
  {% if columns %}
    {% do headrace__alter_relation_add_remove_columns(relation, columns, none) %}
  {% endif %}
{% endmacro %}


{% macro headrace__snapshot_merge_sql(target, source, insert_cols) %}
  {%- set columns = config.get('snapshot_table_column_names') or get_snapshot_table_column_names() -%}
  {%- set current = config.get('dbt_valid_to_current') -%}
  merge into {{ target.render() }} as DBT_INTERNAL_DEST
  using {{ source.render() }} as DBT_INTERNAL_SOURCE
  on DBT_INTERNAL_SOURCE.{{ columns.dbt_scd_id }} = DBT_INTERNAL_DEST.{{ columns.dbt_scd_id }}
  when matched
    and {% if current -%}
      (DBT_INTERNAL_DEST.{{ columns.dbt_valid_to }} = {{ current }} or DBT_INTERNAL_DEST.{{ columns.dbt_valid_to }} is null)
    {%- else -%}
      DBT_INTERNAL_DEST.{{ columns.dbt_valid_to }} is null
    {%- endif %}
    and DBT_INTERNAL_SOURCE.dbt_change_type in ('update', 'delete')
  then update set {{ columns.dbt_valid_to }} = DBT_INTERNAL_SOURCE.{{ columns.dbt_valid_to }}
  when not matched and DBT_INTERNAL_SOURCE.dbt_change_type = 'insert'
  then insert ({{ insert_cols | join(', ') }})
  values ({% for column in insert_cols %}DBT_INTERNAL_SOURCE.{{ column }}{{ ', ' if not loop.last }}{% endfor %})
{% endmacro %}
