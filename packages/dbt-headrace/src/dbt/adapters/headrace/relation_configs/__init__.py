"""What relations are configured with, and how that is compared with what is there."""

from dbt.adapters.headrace.relation_configs.columns import changes_of, column_changes
from dbt.adapters.headrace.relation_configs.dynamic_table import DynamicTableChanges, DynamicTableConfig

__all__ = ["DynamicTableChanges", "DynamicTableConfig", "changes_of", "column_changes"]
