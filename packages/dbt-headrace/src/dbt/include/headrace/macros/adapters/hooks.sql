{#- There are no transactions: what dbt runs before or after one has no COMMIT to wait for. -#}
{% macro run_hooks(hooks, inside_transaction=true) %}
  {% for hook in hooks | selectattr('transaction', 'equalto', inside_transaction) %}
    {% set rendered = render(hook.get('sql')) | trim %}
    {% if rendered %}
      {% call statement(auto_begin=false) %}
        {{ rendered }}
      {% endcall %}
    {% endif %}
  {% endfor %}
{% endmacro %}


{% macro headrace__run_pre_hooks() %}
  {{ run_hooks(pre_hooks, inside_transaction=false) }}
  {{ run_hooks(pre_hooks, inside_transaction=true) }}
{% endmacro %}


{% macro headrace__run_post_hooks() %}
  {{ run_hooks(post_hooks, inside_transaction=true) }}
  {{ run_hooks(post_hooks, inside_transaction=false) }}
{% endmacro %}
