{% macro headrace__list_relations_without_caching(schema_relation) %}
  {% do return(adapter.list_relations_without_caching(schema_relation)) %}
{% endmacro %}


{% macro headrace__get_drop_sql(relation) %}
  {%- if relation.is_view -%}
    {{ headrace__drop_view(relation) }}
  {%- elif relation.type == 'dynamic_table' -%}
    drop dynamic table if exists {{ relation.render() }}
  {%- elif relation.type == 'external' -%}
    drop table stream if exists {{ relation.render() }}
  {%- elif relation.type == 'function' -%}
    drop function if exists {{ relation.render() }}
  {%- else -%}
    {{ headrace__drop_table(relation) }}
  {%- endif -%}
{% endmacro %}


{% macro headrace__drop_table(relation) %}
  drop table if exists {{ relation.render() }}
{% endmacro %}


{% macro headrace__drop_view(relation) %}
  drop view if exists {{ relation.render() }}
{% endmacro %}


{% macro headrace__truncate_relation(relation) %}
  {% call statement('truncate_relation') %}
    truncate table {{ relation.render() }}
  {% endcall %}
{% endmacro %}


{% macro headrace__rename_relation(from_relation, to_relation) %}
  {% call statement('rename_relation') %}
    alter {{ {'view': 'view', 'dynamic_table': 'dynamic table'}.get(from_relation.type | string, 'table') }} {{ from_relation.render() }} rename to {{ to_relation.render() }}
  {% endcall %}
{% endmacro %}


{% macro headrace__get_rename_table_sql(relation, new_name) %}
  alter table {{ relation.render() }} rename to {{ relation.incorporate(path={'identifier': new_name}).render() }}
{% endmacro %}


{% macro headrace__get_replace_table_sql(relation, sql) %}
  {{ create_table_as(False, relation, sql) }}
{% endmacro %}


{% macro headrace__get_replace_view_sql(relation, sql) %}
  {{ create_view_as(relation, sql) }}
{% endmacro %}


{#- What dbt builds on the way is a view of the session. -#}
{% macro headrace__make_temp_relation(base_relation, suffix) %}
  {% do return(adapter.temporary_view(base_relation, suffix)) %}
{% endmacro %}


{#- Rows that must be computed before they can be taken: a table whose name tells the process, and the batch if the model is
    built in batches. -#}
{% macro headrace__staging_table(base_relation) %}
  {%- set mark = invocation_id[:8] ~ (('_' ~ model.batch.id) if model.batch else '') -%}
  {%- set staged = adapter.staging_table(base_relation, mark) -%}
  {%- do adapter.drop_leftovers(staged) -%}
  {%- do return(staged) -%}
{% endmacro %}


{#- What has the name of a model, after a process that was killed while it built it has been made good. A function may have
    the name as well. -#}
{% macro headrace__existing_relation(relation) %}
  {% do adapter.refuse_shared_name(model, graph) %}
  {% do adapter.settle_interrupted(relation) %}
  {% set found = load_cached_relation(relation) %}
  {% do return(none if found is not none and found.type == 'function' else found) %}
{% endmacro %}


{#- Where a relation is to be built: in its place; or, while something of another kind has its name, beside that, so that
    what cannot be built takes nothing away. -#}
{% macro headrace__place_to_build(existing_relation, target_relation) %}
  {% if existing_relation is none or existing_relation.type == target_relation.type %}
    {% do return(target_relation) %}
  {% endif %}
  {% do headrace__refuse_stream(existing_relation) %}
  {{ log("Building " ~ target_relation.render() ~ " beside what is there, because that is of type " ~ existing_relation.type) }}
  {% do return(adapter.built_beside(existing_relation, target_relation)) %}
{% endmacro %}


{% macro headrace__refuse_stream(existing_relation) %}
  {% if existing_relation.type == 'external' %}
    {% do exceptions.raise_compiler_error(existing_relation.render() ~ " is a table stream. Drop it, or give the model another name.") %}
  {% endif %}
{% endmacro %}
