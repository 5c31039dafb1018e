"""Tasks that are no SQL: Python files and commands, as processes of their own."""
