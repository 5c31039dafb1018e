{#- Functions in SQL. Code in other languages is refused by the server. -#}
{% macro headrace__scalar_function_create_replace_signature_sql(target_relation) %}
  CREATE OR REPLACE FUNCTION {{ target_relation.render() }} ({{ formatted_scalar_function_args_sql() }})
  returns {{ model.returns.data_type }}
  {{ scalar_function_volatility_sql() }}
{% endmacro %}


{% macro headrace__scalar_function_body_sql() %}
  return (
    {{ model.compiled_code }}
  )
{% endmacro %}


{% macro headrace__scalar_function_volatility_sql() %}
  {%- set volatility = model.config.get('volatility') -%}
  {%- if volatility == 'deterministic' -%}
    deterministic
  {%- elif volatility == 'non-deterministic' -%}
    not deterministic
  {%- elif volatility is not none -%}
    {%- do unsupported_volatility_warning(volatility) -%}
  {%- endif -%}
{% endmacro %}


{% macro headrace__list_function_relations_without_caching(schema_relation) %}
  {%- do return(adapter.list_functions(schema_relation)) -%}
{% endmacro %}
