{% macro headrace__type_float() %}
  {{- return('double') -}}
{% endmacro %}
