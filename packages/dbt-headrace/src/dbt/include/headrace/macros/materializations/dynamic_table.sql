{#- A table that Headrace keeps fresh. What is there is compared with what the model asks for: settings are altered, another
    query is put in its place, and when nothing has changed the table is refreshed. dbt waits for the rows in each case. -#}
{% materialization dynamic_table, adapter='headrace' %}
  {%- set existing_relation = headrace__existing_relation(this) -%}
  {%- set target_relation = this.incorporate(type='dynamic_table') -%}
  {%- set grant_config = config.get('grants') -%}
  {%- set description = model.description if config.persist_relation_docs() else none -%}
  {%- set asked = adapter.dynamic_table_config(config, sql, description) -%}
  {%- if config.get('contract') and config.get('contract').enforced -%}
    {{- get_assert_columns_equivalent(sql) -}}
  {%- endif -%}

  {{ headrace__run_pre_hooks() }}

  {%- set there = existing_relation if existing_relation is not none and existing_relation.type == 'dynamic_table' else none -%}
  {% if there is none %}
    {% set built_relation = headrace__place_to_build(existing_relation, target_relation) %}
    {% call statement('main') %}
      {{ headrace__create_dynamic_table_sql(built_relation, asked.clauses, sql) }}
    {% endcall %}
    {% do adapter.put_in_place() %}
  {% else %}
    {% do headrace__update_dynamic_table(target_relation, asked, sql, should_full_refresh()) %}
  {% endif %}

  {{ headrace__run_post_hooks() }}

  {% do apply_grants(target_relation, grant_config, should_revoke(there, full_refresh_mode=false)) %}
  {% do persist_docs(target_relation, model, for_relation=false) %}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}


{% macro headrace__create_dynamic_table_sql(relation, clauses, sql) %}
  {{ config.get('sql_header', '') or '' }}
  create or replace dynamic table {{ relation.render() }}
  {{ clauses }}
  as
  {{ sql }}
{% endmacro %}


{#- A full refresh puts the query in its place again, and computes all rows anew, in place: readers see the old ones until
    the new ones are there. -#}
{% macro headrace__update_dynamic_table(relation, asked, sql, full=false) %}
  {%- set changes = adapter.dynamic_table_changes(relation, asked, sql) -%}
  {%- set on_change = 'apply' if full else (config.get('on_configuration_change') or 'apply') -%}
  {%- if full -%}
    {{ log("Applying REPLACE to: " ~ relation.render()) }}
  {%- elif not changes.is_empty -%}
    {#- In the words that dbt has for materialized views. -#}
    {%- set told = "Configuration changes were identified and `on_configuration_change` was set to `" ~ on_change ~ "` for `" ~ relation.render() ~ "`: " ~ changes.told | join(', ') -%}
    {%- if on_change == 'fail' -%}
      {%- do exceptions.raise_fail_fast_error(told) -%}
    {%- elif on_change == 'continue' -%}
      {%- do exceptions.warn(told) -%}
    {%- else -%}
      {{ log("Applying " ~ ("REPLACE" if changes.needs_replace else "ALTER") ~ " to: " ~ relation.render() ~ ": " ~ changes.told | join(', ')) }}
    {%- endif -%}
  {%- endif -%}
  {% if full or (on_change == 'apply' and changes.needs_replace) %}
    {% call statement('main') %}
      {{ headrace__create_dynamic_table_sql(relation, changes.clauses, sql) }}
    {% endcall %}
  {% elif on_change == 'apply' %}
    {% for alter in changes.alters %}
      {% call statement('alter') %}
        {{ alter }}
      {% endcall %}
    {% endfor %}
  {% endif %}
  {#- Also after OR REPLACE, which keeps the rows where the query means the same; only one that has just computed all of them
      need not do it again. -#}
  {%- set replaced = load_result('main') -%}
  {% if not (full and replaced and 'computed from the sources' in replaced['response'].status) %}
    {% call statement('main') %}
      refresh dynamic table {{ relation.render() }} {{ 'full' if full }}
    {% endcall %}
  {% endif %}
{% endmacro %}
