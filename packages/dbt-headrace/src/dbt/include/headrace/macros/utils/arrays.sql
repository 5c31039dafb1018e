{% macro headrace__array_construct(inputs, data_type) -%}
  {%- if inputs -%}
  array({{ inputs | join(', ') }})
  {%- else -%}
  cast(array() as array<{{ data_type }}>)
  {%- endif -%}
{%- endmacro %}


{% macro headrace__array_concat(array_1, array_2) -%}
  concat({{ array_1 }}, {{ array_2 }})
{%- endmacro %}


{% macro headrace__array_append(array, new_element) -%}
  array_append({{ array }}, {{ new_element }})
{%- endmacro %}
