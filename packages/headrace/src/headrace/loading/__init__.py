"""Rows on their way into tables: batches that clients send and files that COPY INTO reads, each exactly once.

What comes from outside is checked row by row against the table's columns (`json_rows`, `arrow_rows`, `csv_rows`), kept
on disk until it is in the table (`spool`), and appended by Spark in commits that carry a number of their own
(`commits`). Bad rows take the same way into the table `<table>_rejects`.
"""
