"""DataFrames without Spark: what is called on them is written down, and a server does it.

Nothing here loads PySpark or needs Java. A DataFrame is a node of a tree (`tree`); its methods, columns and functions
make bigger trees out of smaller ones; an action sends the tree as JSON, and `headrace.session.replaying` builds it
again from the names that `allowed` lists.
"""
