{#- Without a unique_key rows are appended, with one they are merged. -#}
{% macro headrace__get_incremental_default_sql(arg_dict) %}
  {%- if arg_dict['unique_key'] -%}
    {{ headrace__get_incremental_merge_sql(arg_dict) }}
  {%- else -%}
    {{ headrace__get_incremental_append_sql(arg_dict) }}
  {%- endif -%}
{% endmacro %}


{% macro headrace__get_incremental_append_sql(arg_dict) %}
  {{ headrace__insert_sql('insert into', arg_dict) }}
{% endmacro %}


{#- An INSERT goes by the places of columns, and of the fields in them: so each is told by its name. -#}
{% macro headrace__insert_sql(verb, arg_dict) %}
  {%- set columns = arg_dict['dest_columns'] -%}
  {{ verb }} {{ arg_dict['target_relation'].render() }} ({{ columns | map(attribute='quoted') | join(', ') }})
  select {{ adapter.taken_by_name(arg_dict['temp_relation'], arg_dict['target_relation'], columns) | join(', ') }}
  from {{ arg_dict['temp_relation'].render() }}
{%- endmacro %}


{% macro headrace__get_incremental_merge_sql(arg_dict) %}
  {{ headrace__get_merge_sql(
      arg_dict['target_relation'], arg_dict['temp_relation'], arg_dict['unique_key'], arg_dict['dest_columns'],
      arg_dict['incremental_predicates']) }}
{% endmacro %}


{% macro headrace__get_merge_sql(target, source, unique_key, dest_columns, incremental_predicates=none) %}
  {%- set conditions = [] + (incremental_predicates or []) -%}
  {%- set keys = headrace__keys(unique_key, dest_columns) -%}
  {%- for key in keys -%}
    {%- if not adapter.is_column_name(key) -%}
      {%- do exceptions.raise_compiler_error("unique_key has the expression '" ~ key ~ "': merge needs columns. Give the expression a name in the model, or use delete+insert.") -%}
    {%- endif -%}
    {%- do conditions.append(get_merge_unique_key_match('DBT_INTERNAL_SOURCE.' ~ key, 'DBT_INTERNAL_DEST.' ~ key)) -%}
  {%- endfor -%}
  {%- if not keys -%}
    {%- do conditions.append('false') -%}
  {%- endif -%}
  merge into {{ target.render() }} as DBT_INTERNAL_DEST
  using {{ headrace__rows_by_name(source, target, dest_columns) }} as DBT_INTERNAL_SOURCE
  on {{ '(' ~ conditions | join(') and (') ~ ')' }}
  {%- set updated = headrace__updated_columns(target, source, dest_columns) if keys else [] %}
  {%- if updated %}
  when matched then update set
    {%- for column in updated %}
    {{ column }} = DBT_INTERNAL_SOURCE.{{ column }}{{ ',' if not loop.last }}
    {%- endfor %}
  {%- endif %}
  {{ headrace__when_not_matched(dest_columns) }}
{% endmacro %}


{#- The new rows, with structs as the table has them. -#}
{% macro headrace__rows_by_name(source, target, columns) %}
  {%- set taken = adapter.taken_by_name(source, target, columns) -%}
  {%- set others = [] -%}
  {%- for column in columns -%}
    {%- if taken[loop.index0] != column.quoted -%}
      {%- do others.append(column.quoted) -%}
    {%- endif -%}
  {%- endfor -%}
  {%- if others -%}
    (select * except ({{ others | join(', ') }})
    {%- for column in columns %}{% if column.quoted in others %}, {{ taken[loop.index0] }} as {{ column.quoted }}{% endif %}{% endfor %} from {{ source.render() }})
  {%- else -%}
    {{ source.render() }}
  {%- endif -%}
{% endmacro %}


{#- What a row with the same key takes from the new one. What is left out may be missing from the table, or the new rows. -#}
{% macro headrace__updated_columns(target, source, dest_columns) %}
  {%- set excluded = config.get('merge_exclude_columns') -%}
  {%- set there = adapter.get_columns_in_relation(target) + adapter.get_columns_in_relation(source) if excluded else [] -%}
  {%- set left_out = adapter.left_out_columns('merge_exclude_columns', excluded, there) -%}
  {%- set wanted = adapter.named_columns('merge_update_columns', config.get('merge_update_columns'), dest_columns) -%}
  {%- do return(get_merge_update_columns(wanted, left_out, dest_columns)) -%}
{% endmacro %}


{#- The columns of a unique_key, in quotes, and its expressions. Delta says no more of a column that is not there than that
    something went wrong. -#}
{% macro headrace__keys(unique_key, columns) %}
  {%- set keys = [] -%}
  {%- for key in headrace__name_list(unique_key) -%}
    {%- do keys.append(adapter.key_of('unique_key', key, columns)) -%}
  {%- endfor -%}
  {%- do return(keys) -%}
{% endmacro %}


{% macro headrace__when_not_matched(dest_columns, source='DBT_INTERNAL_SOURCE') %}
  {%- set names = dest_columns | map(attribute='quoted') | list -%}
  when not matched then insert ({{ names | join(', ') }})
  values ({% for name in names %}{{ source }}.{{ name }}{{ ', ' if not loop.last }}{% endfor %})
{% endmacro %}


{% macro headrace__get_incremental_delete_insert_sql(arg_dict) %}
  {%- set unique_key = arg_dict['unique_key'] -%}
  {%- if not unique_key -%}
    {{ headrace__get_incremental_append_sql(arg_dict) }}
  {%- else -%}
    {{ headrace__replace_by_key_sql(
        arg_dict['target_relation'], arg_dict['temp_relation'], headrace__keys(unique_key, arg_dict['dest_columns']),
        arg_dict['dest_columns'], arg_dict['incremental_predicates']) }}
  {%- endif -%}
{% endmacro %}


{#- Replaces the partitions that the new rows are in; without partition_by, the whole table. -#}
{% macro headrace__get_incremental_insert_overwrite_sql(arg_dict) %}
  {%- if arg_dict['incremental_predicates'] -%}
    {%- do exceptions.raise_compiler_error("insert_overwrite replaces whole partitions: incremental_predicates cannot be used with it.") -%}
  {%- endif -%}
  {%- set overwrite = headrace__insert_sql('insert overwrite', arg_dict) -%}
  {%- if config.get('partition_by') -%}
  {%- do adapter.require_partitions(arg_dict['target_relation'], headrace__name_list(config.get('partition_by'))) -%}
  set spark.sql.sources.partitionOverwriteMode = dynamic;
  {{ overwrite }};
  reset spark.sql.sources.partitionOverwriteMode
  {%- else -%}
  {{ overwrite }}
  {%- endif -%}
{% endmacro %}


{#- Deletes the rows whose key is among the new ones and inserts these, in one commit. The new rows are computed once, also
    where they come out differently each time: the first of each key comes twice, as the key of what goes, and as itself,
    which matches nothing. -#}
{% macro headrace__replace_by_key_sql(target, source, keys, dest_columns, predicates) %}
  {%- set names = dest_columns | map(attribute='quoted') | list -%}
  {%- set taken = adapter.taken_by_name(source, target, dest_columns, typed=true) -%}
  merge into {{ target.render() }} as DBT_INTERNAL_DEST
  using (
    select __dbt_is_key, {% for key in keys %}if(__dbt_is_key, {{ key }}, null) as __dbt_key_{{ loop.index }}, {% endfor %}
      named_struct({% for column in dest_columns %}{{ adapter.literal(column.name) }}, {{ taken[loop.index0] }}{{ ', ' if not loop.last }}{% endfor %}) as __dbt_row
    from (
      select *, row_number() over (partition by {{ keys | join(', ') }} order by {{ keys | join(', ') }}) as __dbt_number
      from {{ source.render() }}
    )
    lateral view explode(if(__dbt_number = 1, array(true, false), array(false))) as __dbt_is_key
  ) as DBT_INTERNAL_SOURCE
  on DBT_INTERNAL_SOURCE.__dbt_is_key
    {%- for key in keys %}
    {#- The other side has no column of the table's: an expression without its name means the table. #}
    and {{ 'DBT_INTERNAL_DEST.' if adapter.is_column_name(key) }}{{ key }} = DBT_INTERNAL_SOURCE.__dbt_key_{{ loop.index }}
    {%- endfor %}
    {%- for predicate in predicates or [] %}
    and ({{ predicate }})
    {%- endfor %}
  when matched then delete
  when not matched and not DBT_INTERNAL_SOURCE.__dbt_is_key then insert ({{ names | join(', ') }})
  values ({% for name in names %}DBT_INTERNAL_SOURCE.__dbt_row.{{ name }}{{ ', ' if not loop.last }}{% endfor %})
{% endmacro %}


{#- A batch replaces the rows of its time. -#}
{% macro headrace__get_incremental_microbatch_sql(arg_dict) %}
  {%- set event_time = 'DBT_INTERNAL_DEST.' ~ config.get('event_time') -%}
  {%- set start = (model.batch.event_time_start if model.batch) or model.config.get('__dbt_internal_microbatch_event_time_start') -%}
  {%- set end = (model.batch.event_time_end if model.batch) or model.config.get('__dbt_internal_microbatch_event_time_end') -%}
  {%- if not start or not end -%}
    {%- do exceptions.raise_compiler_error("dbt ran the model without saying from when to when its batch goes, and all rows of the table would have been replaced. If the project has a macro get_incremental_microbatch_sql of its own, set the flag require_batched_execution_for_custom_microbatch_strategy.") -%}
  {%- endif -%}
  {%- set bounds = [event_time ~ " >= timestamp '" ~ start ~ "'", event_time ~ " < timestamp '" ~ end ~ "'"] + (arg_dict['incremental_predicates'] or []) -%}
  merge into {{ arg_dict['target_relation'].render() }} as DBT_INTERNAL_DEST
  using {{ headrace__rows_by_name(arg_dict['temp_relation'], arg_dict['target_relation'], arg_dict['dest_columns']) }} as DBT_INTERNAL_SOURCE
  on false
  {{ headrace__when_not_matched(arg_dict['dest_columns']) }}
  when not matched by source{% for bound in bounds %} and ({{ bound }}){% endfor %} then delete
{% endmacro %}
