{% materialization table, adapter='headrace', supported_languages=['sql', 'python'] %}
  {%- set existing_relation = headrace__existing_relation(this) -%}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set grant_config = config.get('grants') -%}
  {%- set language = model['language'] -%}

  {{ headrace__run_pre_hooks() }}

  {% if language == 'sql' %}
    {% do adapter.refuse_streams_of_others(context, target_relation) %}
  {% endif %}
  {% set built_relation = headrace__place_to_build(existing_relation, target_relation) %}
  {% call statement('main', language=language) %}
    {{ create_table_as(False, built_relation, compiled_code, language) }}
  {% endcall %}
  {% do adapter.put_in_place() %}

  {{ headrace__run_post_hooks() }}

  {% do apply_grants(target_relation, grant_config, should_revoke(existing_relation, full_refresh_mode=True)) %}
  {% do persist_docs(target_relation, model, for_relation=(language != 'sql')) %}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
