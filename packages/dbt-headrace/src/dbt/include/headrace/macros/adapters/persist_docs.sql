{#- The comments of a view stand in its definition. -#}
{% macro headrace__persist_docs(relation, model, for_relation, for_columns) %}
  {% if relation.is_view %}
    {% do return(none) %}
  {% endif %}
  {#- A table that dbt builds anew has its comment from CREATE; one that stays must be told, if it is another. -#}
  {% if for_relation and config.persist_relation_docs() and model.description and adapter.comment_of(relation) != model.description %}
    {% do run_query(alter_relation_comment(relation, model.description)) %}
  {% endif %}
  {% if for_columns and config.persist_column_docs() and model.columns %}
    {% set existing = adapter.get_columns_in_relation(relation) | map(attribute='name') | list %}
    {% set documented = validate_doc_columns(relation, model.columns, existing) %}
    {% do headrace__comment_columns(relation, adapter.new_comments(relation, documented)) %}
  {% endif %}
{% endmacro %}


{% macro headrace__comment_columns(relation, documented) %}
  {% if relation.type == 'dynamic_table' %}
    {% for name in documented %}
      {% call statement('comment') %}
        alter dynamic table {{ relation.render() }} change column {{ adapter.quote(name) }} comment {{ adapter.literal(documented[name]['description']) }}
      {% endcall %}
    {% endfor %}
  {% elif documented %}
    {% call statement('comment') %}
      {{ headrace__alter_column_comment(relation, documented) }}
    {% endcall %}
  {% endif %}
{% endmacro %}


{% macro headrace__alter_relation_comment(relation, comment) %}
  {%- if relation.type == 'dynamic_table' -%}
    alter dynamic table {{ relation.render() }} set comment {{ adapter.literal(comment) }}
  {%- else -%}
    comment on table {{ relation.render() }} is {{ adapter.literal(comment) }}
  {%- endif -%}
{% endmacro %}


{% macro headrace__alter_column_comment(relation, column_dict) %}
  alter table {{ relation.render() }} alter column
  {%- for name in column_dict %}
    {{ adapter.quote(name) }} comment {{ adapter.literal(column_dict[name]['description']) }}{{ ',' if not loop.last }}
  {%- endfor %}
{% endmacro %}
