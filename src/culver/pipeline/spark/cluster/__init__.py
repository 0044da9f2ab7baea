"""Spark clusters: masters, executors, and a standalone cluster on this machine."""
