{% macro headrace__create_view_as(relation, sql) %}
  {%- set contract = config.get('contract') -%}
  {{ config.get('sql_header', '') or '' }}
  create or replace view {{ relation.render() }}
  {%- if contract and contract.enforced %}
    {{- get_assert_columns_equivalent(sql) }}
  {%- endif %}
  {%- if config.persist_column_docs() and model.columns %}
    {{ headrace__view_columns(sql) }}
  {%- endif %}
  {%- if config.persist_relation_docs() and model.description %}
  comment {{ adapter.literal(model.description) }}
  {%- endif %}
  as
  {{ sql }}
{% endmacro %}


{#- A view of the session, which dbt makes on its way: without comments, and without a look at the contract. It is dropped
    however the node ends. -#}
{% macro headrace__create_temporary_view(relation, sql) %}
  {%- do adapter.drop_leftovers(relation) -%}
  {{ config.get('sql_header', '') or '' }}
  create or replace temporary view {{ relation.render() }} as
  {{ sql }}
{% endmacro %}


{#- The comments of a view's columns stand in its definition, and then all of its columns do. -#}
{% macro headrace__view_columns(sql) %}
  {%- set columns = get_column_schema_from_query(sql, config.get('sql_header')) -%}
  {%- set documented = validate_doc_columns(this, model.columns, columns | map(attribute='name') | list) -%}
  {%- set comments = {} -%}
  {%- for name in documented -%}
    {%- do comments.update({name | lower: documented[name]['description']}) -%}
  {%- endfor -%}
  (
  {%- for column in columns %}
    {{ column.quoted }}{% if comments.get(column.name | lower) %} comment {{ adapter.literal(comments[column.name | lower]) }}{% endif %}{{ ',' if not loop.last }}
  {%- endfor %}
  )
{% endmacro %}
