"""Constraints that no interval of keys expresses, evaluated once for each distinct value."""
