"""Clauses in columns become the arrays of a segment, and those a file."""
