"""Virtual clusters and jobs: who waits, who runs, and what is known of it afterwards.

`clusters` is the face of it; `queue` is one cluster with its slots and threads, `jobs` one statement on its way, and
`pools` all that concerns Spark: a job's share of the cores, its tag, and stopping its work.
"""
