"""Benchmarks: the named workloads, and the frame that measures on them."""
