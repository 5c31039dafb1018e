{% macro headrace__snapshot_hash_arguments(args) %}
  md5(concat_ws('|'{% for arg in args %}, coalesce(cast({{ arg }} as string), ''){% endfor %}))
{% endmacro %}


{% macro headrace__snapshot_string_as_time(timestamp) %}
  {%- do return("timestamp '" ~ timestamp ~ "'") -%}
{% endmacro %}


{% macro headrace__build_snapshot_table(strategy, sql) %}
  {% do headrace__refuse_streams_of_snapshot(strategy, sql) %}
  {{ default__build_snapshot_table(strategy, sql) }}
{% endmacro %}


{#- One that minds what is gone wants all rows each time. Any other takes the changes, which are another's then no more. -#}
{% macro headrace__refuse_streams_of_snapshot(strategy, sql) %}
  {% if strategy.hard_deletes in ('invalidate', 'new_record') %}
    {% do adapter.refuse_streams(sql, 'The snapshot ' ~ model.name, "Let it read the stream's table, or set hard_deletes: ignore.") %}
  {% else %}
    {% do adapter.refuse_streams_of_others(context, this) %}
  {% endif %}
{% endmacro %}


{#- As dbt's own, for which a column is another one when its name is spelled in another case: then each row had changed. -#}
{% macro snapshot_check_all_get_existing_columns(node, target_exists, check_cols_config) %}
  {%- if not target_exists -%}
    {%- do return((false, [])) -%}
  {%- endif -%}
  {%- if check_cols_config != 'all' and (check_cols_config is string or not check_cols_config) -%}
    {%- do exceptions.raise_compiler_error("check_cols is '" ~ check_cols_config ~ "'; write 'all', or a list of columns.") -%}
  {%- endif -%}
  {%- set checked -%}
    select {{ '*' if check_cols_config == 'all' else check_cols_config | join(', ') }} from (
      {{ node['compiled_code'] }}
    ) as __dbt_checked
  {%- endset -%}
  {%- set target = adapter.get_relation(database=node.database, schema=node.schema, identifier=node.alias) -%}
  {%- set there = {} -%}
  {%- for column in adapter.get_columns_in_relation(target) -%}
    {%- do there.update({column.name | lower: column.quoted}) -%}
  {%- endfor -%}
  {%- set found = [] -%}
  {%- set new = [] -%}
  {%- for name in get_columns_in_query(checked) -%}
    {%- do (found if name | lower in there else new).append(there.get(name | lower, name)) -%}
  {%- endfor -%}
  {%- do return((new | length > 0, found)) -%}
{% endmacro %}


{#- The new state of the rows as a view. It compares and puts together by the places of fields in structs, so those of the
    query are first brought into the order that the snapshot has. -#}
{% macro headrace__build_snapshot_staging_table(strategy, sql, target_relation) %}
  {% do headrace__refuse_streams_of_snapshot(strategy, sql) %}
  {% set temp_relation = make_temp_relation(target_relation) %}
  {% set sql = adapter.in_order_of(sql, target_relation, strategy.hard_deletes == 'new_record') %}
  {% call statement('build_snapshot_staging_relation') %}
    {{ headrace__create_temporary_view(temp_relation, snapshot_staging_table(strategy, sql, target_relation)) }}
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
    {#- A row that was gone and is back as it was has the id of the version that was closed. #}
    and DBT_INTERNAL_SOURCE.dbt_change_type <> 'insert'
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


{#- As dbt's own, which would have the whole query analysed for it: the view of the new rows tells the type. -#}
{% macro check_time_data_types(sql) %}
  {%- set columns = get_column_schema_from_query(sql) if load_cached_relation(this) is none else adapter.get_columns_in_relation(make_temp_relation(this)) -%}
  {%- for column in columns if column.name | lower == 'dbt_updated_at' and column.dtype != 'timestamp' -%}
    {%- set expected = get_snapshot_get_time_data_type() -%}
    {%- if expected is not none and expected != column.dtype and exceptions.warn_snapshot_timestamp_data_types -%}
      {{ exceptions.warn_snapshot_timestamp_data_types(expected, column.dtype) }}
    {%- endif -%}
  {%- endfor -%}
{% endmacro %}
