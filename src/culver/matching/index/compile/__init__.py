"""Compiling: from predicates to a table of clauses.

In come predicates (clauses of constraints), or a prepared filter with a column of values for each parameter. Out
comes a `ClauseTable`: each clause as terms, which are intervals of 64-bit keys, and needs, which are everything else.
"""
