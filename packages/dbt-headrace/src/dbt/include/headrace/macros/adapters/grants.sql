{#- A grant stays with its table when CREATE OR REPLACE gives it other rows. -#}
{% macro headrace__copy_grants() %}
  {{ return(true) }}
{% endmacro %}


{% macro headrace__support_multiple_grantees_per_dcl_statement() %}
  {{ return(false) }}
{% endmacro %}


{#- As dbt's own; but who loses ALL gets again what the config still gives: ALL takes the others with it. -#}
{% macro headrace__apply_grants(relation, grant_config, should_revoke=True) %}
  {% if grant_config %}
    {% set there = adapter.standardize_grants_dict(run_query(get_show_grant_sql(relation))) if should_revoke else {} %}
    {% set needless = diff_of_two_dicts(there, grant_config) %}
    {% set missing = adapter.granted_again(diff_of_two_dicts(grant_config, there), grant_config, needless) %}
    {% set statements = get_dcl_statement_list(relation, needless, get_revoke_sql) + get_dcl_statement_list(relation, missing, get_grant_sql) %}
    {% if statements %}
      {{ call_dcl_statements(statements) }}
    {% endif %}
  {% endif %}
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
