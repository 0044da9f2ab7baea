"""Compiling: from predicates to a table of clauses.

In come predicates (clauses of constraints), or a prepared filter with a column of values for each parameter. Out
comes a `ClauseTable`: each clause as terms, which are intervals of 64-bit keys, and needs, which are everything else.

    key_lines            values as keys, bounds as intervals of keys
    clause_table         clauses in columns; selecting and joining them
    constraint_codec     constraints as text, for needs
    compiler             predicates, one by one
    parameter_columns    the values of one parameter in many rows
    bulk_compiler        many rows of one prepared filter, column by column
"""
