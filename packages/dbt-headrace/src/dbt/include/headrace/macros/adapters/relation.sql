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
    alter {{ 'view' if from_relation.is_view else 'table' }} {{ from_relation.render() }} rename to {{ to_relation.render() }}
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


{#- What dbt builds on the way is a view: it holds no rows, and a table stream that it reads stays where it is. -#}
{% macro headrace__make_temp_relation(base_relation, suffix) %}
  {% do return(base_relation.incorporate(path={'identifier': base_relation.identifier ~ suffix}, type='view')) %}
{% endmacro %}


{#- What has the name of a model. A function may have it as well. -#}
{% macro headrace__existing_relation(relation) %}
  {% set found = load_cached_relation(relation) %}
  {% do return(none if found is not none and found.type == 'function' else found) %}
{% endmacro %}


{#- Where a table or view is to be built: in its place; or, while something of another kind has its name, beside that, so
    that what cannot be built takes nothing away. -#}
{% macro headrace__place_to_build(existing_relation, target_relation) %}
  {% if existing_relation is none or existing_relation.type == target_relation.type %}
    {% do return(target_relation) %}
  {% endif %}
  {% do headrace__refuse_stream(existing_relation) %}
  {% set beside = target_relation.incorporate(path={'identifier': target_relation.identifier ~ '__dbt_new'}) %}
  {% do adapter.drop_leftovers(beside) %}
  {% do return(beside) %}
{% endmacro %}


{#- Puts what was built beside it in the place of what has another kind. -#}
{% macro headrace__put_in_place(built_relation, existing_relation, target_relation) %}
  {% if built_relation.identifier != target_relation.identifier %}
    {% do headrace__drop_other_kind(existing_relation) %}
    {% do adapter.rename_relation(built_relation, target_relation) %}
  {% endif %}
{% endmacro %}


{% macro headrace__drop_other_kind(existing_relation) %}
  {% do headrace__refuse_stream(existing_relation) %}
  {{ log("Dropping " ~ existing_relation.render() ~ " because it is of type " ~ existing_relation.type) }}
  {% do adapter.drop_relation(existing_relation) %}
{% endmacro %}


{% macro headrace__refuse_stream(existing_relation) %}
  {% if existing_relation.type == 'external' %}
    {% do exceptions.raise_compiler_error(existing_relation.render() ~ " is a table stream. Drop it, or give the model another name.") %}
  {% endif %}
{% endmacro %}
