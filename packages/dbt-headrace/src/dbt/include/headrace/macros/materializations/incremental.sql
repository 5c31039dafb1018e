{#- Rows are added by one statement that commits: a table stream that the model reads moves with it, or not at all. -#}
{% materialization incremental, adapter='headrace', supported_languages=['sql', 'python'] %}
  {%- set was_interrupted = adapter.settle_interrupted(this) -%}
  {%- set existing_relation = headrace__existing_relation(this) -%}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set temp_relation = make_temp_relation(target_relation) -%}
  {%- set grant_config = config.get('grants') -%}
  {%- set language = model['language'] -%}
  {%- set on_schema_change = incremental_validate_on_schema_change(config.get('on_schema_change'), default='ignore') -%}
  {%- set strategy = headrace__incremental_strategy() -%}
  {%- set strategy_macro = adapter.get_incremental_strategy_macro(context, strategy) -%}
  {%- set full = existing_relation is none or existing_relation.type != 'table' or should_full_refresh() -%}

  {{ headrace__run_pre_hooks() }}

  {% if was_interrupted and not full and not adapter.is_compiled_alike(context) %}
    {#- dbt compiled the first load, before it was known that the table is there. -#}
    {% do headrace__taken_over(target_relation) %}
  {% elif full and language == 'python' %}
    {#- Here, and not in a macro: dbt takes Python from the materialization itself only. -#}
    {% set built_relation = headrace__place_to_build(existing_relation, target_relation) %}
    {% call statement('main', language=language) %}
      {{ create_table_as(False, built_relation, compiled_code, language) }}
    {% endcall %}
    {% do adapter.put_in_place() %}
  {% elif full %}
    {% do headrace__full_load(existing_relation, target_relation) %}
  {% else %}
    {% if language == 'python' %}
      {#- The rows of a Python model are computed once, on the way into a table of their own. -#}
      {%- set temp_relation = headrace__staging_table(target_relation) -%}
    {% elif config.get('contract') and config.get('contract').enforced %}
      {{- get_assert_columns_equivalent(compiled_code) -}}
    {% endif %}
    {% call statement('create_tmp', language=language) %}
      {{ create_table_as(True, temp_relation, compiled_code, language) }}
    {% endcall %}
    {% set reads_streams = language == 'sql' and adapter.settle_streams(model, temp_relation, target_relation) %}
    {% if reads_streams and adapter.is_partial() %}
      {% do headrace__take_nothing(target_relation, temp_relation) %}
    {% else %}
      {% do headrace__add_rows(existing_relation, target_relation, temp_relation, strategy_macro, on_schema_change) %}
    {% endif %}
  {% endif %}

  {{ headrace__run_post_hooks() }}

  {% do apply_grants(target_relation, grant_config, should_revoke(existing_relation, full_refresh_mode=full)) %}
  {% do persist_docs(target_relation, model, for_relation=(language != 'sql' or not full)) %}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}


{% macro headrace__incremental_strategy() %}
  {%- set strategy = config.get('incremental_strategy') or 'default' -%}
  {%- if strategy == 'microbatch' and not config.get('event_time') -%}
    {%- do exceptions.raise_compiler_error("The strategy microbatch needs the config event_time: the column that tells to which batch a row belongs.") -%}
  {%- endif -%}
  {%- do return(strategy) -%}
{% endmacro %}


{#- The table as a whole. Table streams that the model reads, now or when it is incremental, then stand behind what was
    loaded; see dbt.adapters.headrace.streams. -#}
{% macro headrace__full_load(existing_relation, target_relation) %}
  {%- set load = adapter.full_load(context) -%}
  {%- set takes_from_streams = existing_relation is none and load.reads -%}
  {% if takes_from_streams %}
    {% do adapter.refuse_one_that_came(target_relation) %}
  {% endif %}
  {% set built_relation = headrace__place_to_build(existing_relation, target_relation) %}
  {% call statement('main') %}
    {%- if load.properties %}
      {{ headrace__create_table_as(False, built_relation, load.sql, more_properties=load.properties) }}
    {%- else %}
      {{ create_table_as(False, built_relation, load.sql) }}
    {%- endif %}
  {% endcall %}
  {% do adapter.put_in_place() %}
  {% if takes_from_streams %}
    {% do adapter.refuse_one_replaced(target_relation) %}
  {% endif %}
  {% for each in adapter.after_load(load, target_relation) %}
    {% call statement('move_streams') %}
      {{ each }}
    {% endcall %}
  {% endfor %}
{% endmacro %}


{#- One statement that commits. -#}
{% macro headrace__add_rows(existing_relation, target_relation, temp_relation, strategy_macro, on_schema_change) %}
  {% set dest_columns = process_schema_changes(on_schema_change, temp_relation, existing_relation) %}
  {% if not dest_columns %}
    {% set dest_columns = headrace__columns_of_both(temp_relation, existing_relation) %}
  {% endif %}
  {% if not dest_columns %}
    {%- set given = adapter.get_columns_in_relation(temp_relation) | map(attribute='name') | join(', ') -%}
    {%- set there = adapter.get_columns_in_relation(existing_relation) | map(attribute='name') | join(', ') -%}
    {% do exceptions.raise_compiler_error("The model gives the columns " ~ given ~ ", and its table " ~ existing_relation.render() ~ " has none of them, but " ~ there ~ ". Run it with --full-refresh, or set on_schema_change to append_new_columns or sync_all_columns.") %}
  {% endif %}
  {% set predicates = config.get('predicates', none) or config.get('incremental_predicates', none) %}
  {% set arguments = {
    'target_relation': target_relation,
    'temp_relation': temp_relation,
    'unique_key': config.get('unique_key'),
    'dest_columns': dest_columns,
    'incremental_predicates': [predicates] if predicates is string else predicates,
  } %}
  {% call statement('main') %}
    {{ strategy_macro(arguments) }}
  {% endcall %}
{% endmacro %}


{#- The table holds what the run that was interrupted has loaded, all of it. -#}
{% macro headrace__taken_over(target_relation) %}
  {{ log(target_relation.render() ~ " was loaded by a run that was interrupted; now it has its place. The next run adds what is new since.", info=true) }}
  {% call statement('main') %}
    select * from {{ target_relation.render() }} where false
  {% endcall %}
{% endmacro %}


{#- A part of a stream's changes would come again with the next run, and they all would. -#}
{% macro headrace__take_nothing(target_relation, temp_relation) %}
  {{ log(target_relation.render() ~ " stays as it is: it takes its rows from a table stream, which gives all of them or none.", info=true) }}
  {% call statement('main') %}
    select * from {{ temp_relation.render() }} where false
  {% endcall %}
{% endmacro %}


{#- With on_schema_change: ignore, columns that only one of the two has are left out: those of the table become NULL. -#}
{% macro headrace__columns_of_both(temp_relation, target_relation) %}
  {%- set given = adapter.get_columns_in_relation(temp_relation) | map(attribute='name') | map('lower') | list -%}
  {%- set columns = [] -%}
  {%- for column in adapter.get_columns_in_relation(target_relation) -%}
    {%- if column.name | lower in given -%}
      {%- do columns.append(column) -%}
    {%- endif -%}
  {%- endfor -%}
  {%- do return(columns) -%}
{% endmacro %}
