{#- What Spark takes for one quote inside quotes; a backslash is one of its own. -#}
{% macro headrace__escape_single_quotes(expression) -%}
  {{- expression | replace('\\', '\\\\') | replace("'", "\\'") -}}
{%- endmacro %}


{#- Where only the first few are wanted, the texts are put together with a character that none has, and taken apart again:
    so they are ordered as they are without a limit. -#}
{% macro headrace__listagg(measure, delimiter_text, order_by_clause, limit_num) -%}
  {%- set order = ' within group (' ~ order_by_clause ~ ')' if order_by_clause else '' -%}
  {%- if limit_num -%}
  array_join(slice(split(listagg({{ measure }}, chr(31)){{ order }}, chr(31)), 1, {{ limit_num }}), {{ delimiter_text }})
  {%- else -%}
  listagg({{ measure }}, {{ delimiter_text }}){{ order }}
  {%- endif -%}
{%- endmacro %}


{#- An array, a struct or a map is no text that can be cast: a unit test writes it as an expression, or as YAML has it. -#}
{% macro headrace__safe_cast(field, type) -%}
  {%- if (type | string | lower | trim).startswith(('array', 'struct', 'map')) -%}
  try_cast({{ adapter.nested_value(field, type) }} as {{ type }})
  {%- else -%}
  try_cast({{ field }} as {{ type }})
  {%- endif -%}
{%- endmacro %}
