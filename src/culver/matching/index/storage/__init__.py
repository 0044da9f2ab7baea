"""Versions of the index on disk: written, read, merged and divided."""
