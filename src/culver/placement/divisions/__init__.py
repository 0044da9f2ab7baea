"""Divisions: dimensions that slices share, and who owns which part of each.

In come the clauses of registrations and, where there are some, events. Out come layers, which say which slices hold a
registration and which may get an event.

    division            what a division is: one dimension, and the owner of each part
    range_division      by ranges of keys
    hash_division       by hash buckets of values
    term_spans          the terms of registrations in one dimension, as a division sees them
    division_kernels    the inner loops
    layer               registrations that are narrow in the same dimensions, and those dimensions
    dimension_choice    which dimensions to divide, and where
    redivision          what becomes of the sets when a slice comes or goes
"""
