{% macro headrace__can_clone_table() %}
  {{ return(true) }}
{% endmacro %}


{#- The clone has rows of its own only where it is changed: until then it shows the files of the other table. Delta clones
    into no table that has rows. So a clone that takes another's place is made beside it first. -#}
{% macro headrace__create_or_replace_clone(this_relation, defer_relation) %}
  {%- set existing = headrace__existing_relation(this_relation) -%}
  {%- if existing is none -%}
    create table {{ this_relation.render() }} shallow clone {{ defer_relation.render() }}
  {%- else -%}
    {%- do headrace__refuse_stream(existing) -%}
    {%- set beside = this_relation.incorporate(path={'identifier': this_relation.identifier ~ '__dbt_new'}, type='table') -%}
    {%- do adapter.drop_leftovers(beside) -%}
    drop table if exists {{ beside.render() }};
    create table {{ beside.render() }} shallow clone {{ defer_relation.render() }};
    {{ headrace__get_drop_sql(existing) }};
    {{ headrace__get_rename_table_sql(beside, this_relation.identifier) }}
  {%- endif -%}
{% endmacro %}
