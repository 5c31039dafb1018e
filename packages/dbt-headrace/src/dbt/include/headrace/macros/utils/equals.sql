{#- With dbt's flag for it, NULL equals NULL: by Spark's own operator, which a join can use. -#}
{% macro headrace__equals(expr1, expr2) -%}
  {%- if adapter.behavior.enable_truthy_nulls_equals_macro.no_warn -%}
    ({{ expr1 }} <=> {{ expr2 }})
  {%- else -%}
    ({{ expr1 }} = {{ expr2 }})
  {%- endif -%}
{%- endmacro %}
