"""SQLAlchemy, and with it pandas and the tools that are built on it: `headrace://user:password@host:8910/schema`."""

from headrace.sqlalchemy_dialect.dialect import HeadraceDialect

__all__ = ["HeadraceDialect"]
