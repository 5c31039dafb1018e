{#- The model's code with what puts its rows into the table. It runs on the server, where `_headrace` is. -#}
{% macro headrace__py_write_table(compiled_code, relation) %}
{{ compiled_code }}

_headrace.save(
    model(dbtObj(_headrace.table), _headrace.spark),
    {{ relation.render() | tojson }},
    partition_by={{ adapter.python_literal(headrace__bare_names(config.get('partition_by'))) }},
    clustered_by={{ adapter.python_literal(headrace__bare_names(config.get('clustered_by'))) }},
    properties={{ adapter.python_literal(config.get('properties') or {}) }},
)
{% endmacro %}


{% macro headrace__name_list(value) %}
  {%- do return([value] if value is string else (value or [])) -%}
{% endmacro %}


{% macro headrace__bare_names(value) %}
  {%- set names = [] -%}
  {%- for name in headrace__name_list(value) -%}
    {%- do names.append(adapter.bare(name)) -%}
  {%- endfor -%}
  {%- do return(names) -%}
{% endmacro %}


{% macro headrace__resolve_model_name(input_model_name) %}
  {%- do return(input_model_name | string) -%}
{% endmacro %}
