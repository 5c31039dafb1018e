"""Our SQL: splitting scripts, parsing statements, and rewriting names and settings in text for Spark."""

from headrace.sql.parser import parse
from headrace.sql.split import StatementText, split_statements

__all__ = ["StatementText", "parse", "split_statements"]
