"""The dbt adapter for Headrace."""

from dbt.adapters.base.plugin import AdapterPlugin

from dbt.adapters.headrace.connections import HeadraceConnectionManager
from dbt.adapters.headrace.credentials import HeadraceCredentials
from dbt.adapters.headrace.impl import HeadraceAdapter
from dbt.include import headrace

Plugin = AdapterPlugin(
    adapter=HeadraceAdapter,  # type: ignore[arg-type]
    credentials=HeadraceCredentials,
    include_path=headrace.PACKAGE_PATH,
)

__all__ = ["HeadraceAdapter", "HeadraceConnectionManager", "HeadraceCredentials", "Plugin"]
