{% macro headrace__get_columns_in_relation(relation) %}
  {% do return(adapter.get_columns_in_relation(relation)) %}
{% endmacro %}


{#- As dbt's own, for names that are the same whatever their case. -#}
{% macro headrace__check_for_schema_changes(source_relation, target_relation) %}
  {%- set target_columns = adapter.get_columns_in_relation(target_relation) -%}
  {%- set source_columns = adapter.spelled_as(adapter.get_columns_in_relation(source_relation), target_columns) -%}
  {%- set added = diff_columns(source_columns, target_columns) -%}
  {%- set gone = diff_columns(target_columns, source_columns) -%}
  {%- set types = diff_column_data_types(source_columns, target_columns) -%}
  {%- set changes = {
    'schema_changed': (added + gone + types) | length > 0,
    'source_not_in_target': added,
    'target_not_in_source': gone,
    'source_columns': source_columns,
    'target_columns': target_columns,
    'new_target_types': types,
  } -%}
  {%- do log("In " ~ target_relation.render() ~ ": new columns " ~ added ~ ", columns that are gone " ~ gone ~ ", new types " ~ types) -%}
  {%- do return(changes) -%}
{% endmacro %}


{#- All that differs, in one statement: where one column cannot be changed, none is. -#}
{% macro headrace__sync_column_schemas(on_schema_change, target_relation, schema_changes_dict) %}
  {%- set syncs = on_schema_change == 'sync_all_columns' -%}
  {%- set types = {} -%}
  {%- for changed in schema_changes_dict['new_target_types'] if syncs -%}
    {%- do types.update({changed['column_name'] | lower: changed['new_type']}) -%}
  {%- endfor -%}
  {%- set gone = schema_changes_dict['target_not_in_source'] if syncs else [] -%}
  {%- do headrace__alter_columns(target_relation, schema_changes_dict['source_not_in_target'], gone, types) -%}
{% endmacro %}


{% macro headrace__alter_relation_add_remove_columns(relation, add_columns, remove_columns) %}
  {% do headrace__alter_columns(relation, add_columns, remove_columns, {}) %}
{% endmacro %}


{% macro headrace__alter_column_type(relation, column_name, new_column_type) %}
  {% do headrace__alter_columns(relation, none, none, {column_name | lower: new_column_type}) %}
{% endmacro %}


{#- Columns are added in place. To take one away, or to change its type, the table is written anew, in one statement: it
    keeps its history, and nobody sees it half done. `types` are the new ones by the names of their columns. -#}
{% macro headrace__alter_columns(relation, add_columns, remove_columns, types) %}
  {% if remove_columns or types %}
    {%- set gone = (remove_columns or []) | map(attribute='name') | map('lower') | list -%}
    {%- set expressions = [] -%}
    {%- for column in adapter.get_columns_in_relation(relation) if column.name | lower not in gone -%}
      {%- set new_type = types.get(column.name | lower) -%}
      {%- if new_type -%}
        {%- do expressions.append(adapter.converted(column, api.Column.translate_type(new_type)) ~ ' as ' ~ column.quoted) -%}
      {%- else -%}
        {%- do expressions.append(column.quoted) -%}
      {%- endif -%}
    {%- endfor -%}
    {%- for column in add_columns or [] -%}
      {%- do expressions.append('cast(null as ' ~ column.data_type ~ ') as ' ~ column.quoted) -%}
    {%- endfor -%}
    {% do headrace__rewrite_table(relation, expressions, gone) %}
  {% elif add_columns %}
    {% call statement('add_columns') %}
      alter table {{ relation.render() }} add columns (
        {%- for column in add_columns %} {{ column.quoted }} {{ column.data_type }}{{ ',' if not loop.last }}{% endfor %}
      )
    {% endcall %}
  {% endif %}
{% endmacro %}


{#- The table keeps its properties, also those that no config knows of, and its comment. -#}
{% macro headrace__rewrite_table(relation, expressions, gone) %}
  {%- set kept = adapter.kept_settings(relation, gone) -%}
  {% call statement('rewrite_table') %}
    create or replace table {{ relation.render() }}
    {{- headrace__table_clauses(config.get('contract') if config is defined else none, kept.properties, kept.comment) }}
    as select {{ expressions | join(', ') }} from {{ relation.render() }}
  {% endcall %}
{% endmacro %}


{% macro headrace__get_empty_subquery_sql(select_sql, select_sql_header=none) %}
  {%- if select_sql_header is not none -%}
    {{ select_sql_header }}
  {%- endif -%}
  select * from (
    {{ select_sql }}
  ) as __dbt_sbq
  where false
{% endmacro %}
