{#- One statement makes the table with its rows, or replaces its rows. Only a seed too long for one statement is put
    together in a table beside it first. -#}
{% materialization seed, adapter='headrace' %}
  {%- set existing_relation = headrace__existing_relation(this) -%}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set full = existing_relation is none or should_full_refresh() -%}
  {%- set grant_config = config.get('grants') -%}
  {%- set agate_table = load_agate_table() -%}
  {%- do store_result('agate_table', response='OK', agate_table=agate_table) -%}

  {{ headrace__run_pre_hooks() }}

  {% if existing_relation is not none and existing_relation.type != 'table' %}
    {% do exceptions.raise_compiler_error("Cannot seed to '" ~ existing_relation.render() ~ "', it is a " ~ (existing_relation.type | string).replace('_', ' ') ~ ". Drop it, or give the seed another alias.") %}
  {% endif %}
  {%- set seed = adapter.read_seed(agate_table, model, config.get('column_types')) -%}
  {%- set columns = headrace__seed_columns(agate_table, seed.types) -%}
  {%- set batches = seed.batches -%}
  {%- set rows = headrace__seed_rows(columns, batches[0] if batches else none) -%}
  {% if batches | length > 1 %}
    {%- set staged = headrace__staging_table(target_relation) -%}
    {% call statement('stage') %}
      create or replace table {{ staged.render() }} as {{ rows }}
    {% endcall %}
    {% for batch in batches[1:] %}
      {% call statement('stage_more') %}
        insert into {{ staged.render() }} {{ headrace__seed_rows(columns, batch) }}
      {% endcall %}
    {% endfor %}
    {%- set rows = 'select * from ' ~ staged.render() -%}
  {% endif %}
  {%- set build_sql -%}
    {%- if full -%}
      create or replace table {{ target_relation.render() }} {{ headrace__table_clauses() }} as {{ rows }}
    {%- else -%}
      insert overwrite {{ target_relation.render() }} ({{ columns | map(attribute='quoted') | join(', ') }}) {{ rows }}
    {%- endif -%}
  {%- endset -%}
  {% do adapter.add_query(build_sql, auto_begin=false, abridge_sql_log=true) %}

  {% set code = 'CREATE' if full else 'INSERT' %}
  {% set count = agate_table.rows | length %}
  {% call noop_statement('main', code ~ ' ' ~ count, code, count) %}
    {{ build_sql }}
  {% endcall %}

  {% do apply_grants(target_relation, grant_config, should_revoke(existing_relation, full)) %}
  {% do persist_docs(target_relation, model, for_relation=(not full)) %}

  {{ headrace__run_post_hooks() }}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}


{% macro headrace__seed_columns(agate_table, types) %}
  {%- set columns = [] -%}
  {%- for name in agate_table.column_names -%}
    {%- do columns.append({
      'quoted': adapter.quote_seed_column(name | string, config.get('quote_columns', none)),
      'type': types[loop.index0],
    }) -%}
  {%- endfor -%}
  {%- do return(columns) -%}
{% endmacro %}


{% macro headrace__seed_rows(columns, values) %}
  {%- set sql -%}
  select
    {%- for column in columns %}
    {%- if values is none %} cast(null as {{ column.type }}) as {{ column.quoted }}
    {%- else %} cast(c{{ loop.index }} as {{ column.type }}) as {{ column.quoted }}
    {%- endif %}{{ ',' if not loop.last }}
    {%- endfor %}
    {%- if values is none %}
  where false
    {%- else %}
  from values {{ values }} as v({% for column in columns %}c{{ loop.index }}{{ ', ' if not loop.last }}{% endfor %})
    {%- endif %}
  {%- endset -%}
  {%- do return(sql) -%}
{% endmacro %}
