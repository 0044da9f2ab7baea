"""The Python client: async first, with a thin synchronous face.

The names that users need are in `culver` itself; this package imports its transport libraries only when a
connection is first used.
"""
