"""Layout: from a table of clauses to the arrays that an event searches, and back.

In comes a `ClauseTable`, out come the 37 `SegmentArrays`, which go to a file as they are and which kernels read.
`restoration` gives the table back, for a merge.

    segment_layout       what is where: buckets, clauses, groups of boxes (draws all arrays)
    access_conditions    the condition by which an event finds a clause
    tokens               two small marks of each clause, which exclude it for most events
    box_order            which boxes lie near one another
    chunks               boxes as a tree of nodes with 64 children, in 16-bit ranks
    box_groups           the chunks of all groups
    segment_arrays       the arrays as a tuple, and how a kernel gets them
    restoration          the way back
"""
