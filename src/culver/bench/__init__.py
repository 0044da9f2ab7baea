"""Benchmarks: the named workloads, and the frame that measures on them.

`culver bench NAME` runs one. Each has a module of its own here and a command in `cli`.
"""
