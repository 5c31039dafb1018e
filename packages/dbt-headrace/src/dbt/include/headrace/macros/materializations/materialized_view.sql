{#- What other databases call a materialized view is a dynamic table here, with the same settings. -#}
{% materialization materialized_view, adapter='headrace' %}
  {{ return(context['materialization_dynamic_table_headrace']()) }}
{% endmaterialization %}


{% macro headrace__drop_materialized_view(relation) %}
  drop dynamic table if exists {{ relation.render() }}
{% endmacro %}


{% macro headrace__refresh_materialized_view(relation) %}
  refresh dynamic table {{ relation.render() }}
{% endmacro %}


{% macro headrace__get_create_materialized_view_as_sql(relation, sql) %}
  {{ headrace__create_dynamic_table_sql(relation, adapter.dynamic_table_config(config, sql, none).clauses, sql) }}
{% endmacro %}


{% macro headrace__get_replace_materialized_view_sql(relation, sql) %}
  {{ headrace__get_create_materialized_view_as_sql(relation, sql) }}
{% endmacro %}
