"""The server: one process that holds a lake and answers over HTTP.

`app` builds the application out of `routes`, `service` is what they all work with, `lifecycle` starts and stops it.
"""
