{% macro headrace__can_clone_table() %}
  {{ return(true) }}
{% endmacro %}


{#- The clone has rows of its own only where it is changed: until then it shows the files of the other table. -#}
{% macro headrace__create_or_replace_clone(this_relation, defer_relation) %}
  create table {{ this_relation.render() }} shallow clone {{ defer_relation.render() }}
{% endmacro %}


{#- As dbt's own, but what has the name is only taken away when the clone is there. Delta clones into no table that has
    rows, so a clone that takes another's place is made beside it, too. -#}
{% materialization clone, adapter='headrace' %}
  {%- if not defer_relation -%}
    {{ log("No relation found in state manifest for " ~ model.unique_id, info=true) }}
    {{ return({'relations': []}) }}
  {%- endif -%}
  {%- set existing_relation = headrace__existing_relation(this) -%}
  {%- if existing_relation is not none and not flags.FULL_REFRESH -%}
    {{ log("Relation " ~ existing_relation ~ " already exists", info=true) }}
    {{ return({'relations': []}) }}
  {%- endif -%}
  {%- set other_relation = load_cached_relation(defer_relation) -%}
  {%- if not other_relation or other_relation.type != 'table' or not can_clone_table() -%}
    {{ return(context['materialization_view_headrace']()) }}
  {%- endif -%}

  {%- set target_relation = this.incorporate(type='table') -%}
  {%- if target_relation.render() == defer_relation.render() -%}
    {{ log("Target relation and defer relation are the same, skipping clone for relation: " ~ target_relation.render()) }}
  {%- else -%}
    {%- set built_relation = target_relation -%}
    {%- if existing_relation is not none -%}
      {%- do headrace__refuse_stream(existing_relation) -%}
      {%- set built_relation = adapter.built_beside(existing_relation, target_relation) -%}
    {%- endif -%}
    {% call statement('main') %}
      {{ create_or_replace_clone(built_relation, defer_relation) }}
    {% endcall %}
    {% do adapter.put_in_place() %}
  {%- endif -%}
  {% do apply_grants(target_relation, config.get('grants'), should_revoke(existing_relation, full_refresh_mode=true)) %}
  {% do persist_docs(target_relation, model) %}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
