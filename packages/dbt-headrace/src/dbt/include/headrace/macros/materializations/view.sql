{% materialization view, adapter='headrace' %}
  {%- set existing_relation = headrace__existing_relation(this) -%}
  {%- set kind = 'view' if config.get('views_enabled', true) else 'table' -%}
  {%- set target_relation = this.incorporate(type=kind) -%}
  {%- set grant_config = config.get('grants') -%}

  {{ headrace__run_pre_hooks() }}

  {% if kind == 'table' %}
    {% do adapter.refuse_streams(sql, 'The model ' ~ model.name ~ ', a view that views_enabled: false makes a table,', 'Let it be a view with +views_enabled: true, or ephemeral; or make it an incremental model, which keeps the changes.') %}
  {% endif %}
  {% set built_relation = headrace__place_to_build(existing_relation, target_relation) %}
  {% call statement('main') %}
    {%- if kind == 'view' %}
      {{ get_create_view_as_sql(built_relation, sql) }}
    {%- else %}
      {{ get_create_table_as_sql(False, built_relation, sql) }}
    {%- endif %}
  {% endcall %}
  {% do adapter.put_in_place() %}

  {{ headrace__run_post_hooks() }}

  {% do apply_grants(target_relation, grant_config, should_revoke(existing_relation, full_refresh_mode=True)) %}
  {% do persist_docs(target_relation, model, for_relation=false) %}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
