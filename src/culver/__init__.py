"""Culver: content-based publish/subscribe on Apache Spark."""

__version__ = "0.1.0"
