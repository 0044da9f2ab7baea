"""Filters become clauses in columns: keys, terms and needs."""
