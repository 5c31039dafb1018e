{#- A grant stays with its table when CREATE OR REPLACE gives it other rows. -#}
{% macro headrace__copy_grants() %}
  {{ return(true) }}
{% endmacro %}


{% macro headrace__support_multiple_grantees_per_dcl_statement() %}
  {{ return(false) }}
{% endmacro %}


{% macro headrace__get_show_grant_sql(relation) %}
  show grants on table {{ relation.render() }}
{% endmacro %}


{% macro headrace__get_grant_sql(relation, privilege, grantees) %}
  grant {{ privilege }} on table {{ relation.render() }} to {{ adapter.quote(grantees[0]) }}
{% endmacro %}


{% macro headrace__get_revoke_sql(relation, privilege, grantees) %}
  revoke {{ privilege }} on table {{ relation.render() }} from {{ adapter.quote(grantees[0]) }}
{% endmacro %}


{% macro headrace__call_dcl_statements(dcl_statement_list) %}
  {% for dcl_statement in dcl_statement_list %}
    {% call statement('grants') %}
      {{ dcl_statement }}
    {% endcall %}
  {% endfor %}
{% endmacro %}
