{#- One statement builds a table or replaces it: readers see the old rows or the new ones, and what fails leaves the old
    ones. A contract's constraints are properties of the table, which Delta checks while it writes. -#}
{% macro headrace__create_table_as(temporary, relation, compiled_code, language='sql', more_properties=none) %}
  {%- if language == 'python' -%}
    {{ headrace__py_write_table(compiled_code, relation) }}
  {%- elif temporary -%}
    {{ headrace__create_temporary_view(relation, compiled_code) }}
  {%- else -%}
    {%- set contract = config.get('contract') -%}
    {%- set sql = compiled_code -%}
    {{ config.get('sql_header', '') or '' }}
    create or replace table {{ relation.render() }}
    {%- if contract and contract.enforced %}
      {{- get_assert_columns_equivalent(sql) }}
      {%- set sql = headrace__contracted(sql) %}
    {%- endif %}
    {{ headrace__table_clauses(contract, more_properties) }}
    as
    {{ sql }}
  {%- endif -%}
{% endmacro %}


{#- What stands between the name of a table and AS. What the config says wins over `more_properties` and `comment`. -#}
{% macro headrace__table_clauses(contract=none, more_properties=none, comment=none) %}
  {%- set partition_by = headrace__names(config.get('partition_by')) -%}
  {%- set clustered_by = headrace__names(config.get('clustered_by')) -%}
  {%- set properties = {} -%}
  {%- do properties.update(more_properties or {}) -%}
  {%- for key, value in (config.get('properties') or {}).items() if value is not none -%}
    {%- do properties.update({key: value}) -%}
  {%- endfor -%}
  {%- if contract and contract.enforced -%}
    {%- do properties.update(adapter.constraint_properties(model.columns, model.constraints or [])) -%}
    {%- if 'timestamp_ntz' in model.columns.values() | map(attribute='data_type') | map('lower') | list -%}
      {#- Delta wants to be asked when the table is there already and had no such column. -#}
      {%- do properties.update({'delta.feature.timestampNtz': 'supported'}) -%}
    {%- endif -%}
  {%- endif -%}
  {%- if partition_by and clustered_by -%}
    {%- do exceptions.raise_compiler_error("A table has partition_by or clustered_by, and " ~ model.name ~ " has both: leave one of them out.") -%}
  {%- endif -%}
  {%- if partition_by %}
    partitioned by ({{ partition_by | join(', ') }})
  {%- endif %}
  {%- if clustered_by %}
    cluster by ({{ clustered_by | join(', ') }})
  {%- endif %}
  {%- set comment = model.description if config.persist_relation_docs() and model.description else comment -%}
  {%- if comment %}
    comment {{ adapter.literal(comment) }}
  {%- endif %}
  {%- if properties %}
    tblproperties (
      {%- for key, value in properties.items() %} {{ adapter.literal(key) }} = {{ adapter.literal(value | string) }}{{ ',' if not loop.last }}{% endfor %}
    )
  {%- endif %}
{% endmacro %}


{% macro headrace__names(value) %}
  {%- set names = [] -%}
  {%- for name in ([value] if value is string else (value or [])) -%}
    {%- do names.append(adapter.quote(adapter.bare(name))) -%}
  {%- endfor -%}
  {%- do return(names) -%}
{% endmacro %}


{#- The query with the columns of the contract, in their order. -#}
{% macro headrace__contracted(sql) %}
  {%- set sql -%}
  select
    {%- for name in model.columns %}
    {%- set column = model.columns[name] %}
    {{ adapter.quote(column['name']) if column.get('quote') else column['name'] }}{{ ',' if not loop.last }}
    {%- endfor %}
  from (
    {{ sql }}
  ) as model_subq
  {%- endset -%}
  {%- do return(sql) -%}
{% endmacro %}
