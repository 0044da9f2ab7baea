"""Needs: which constraints that are no interval the rows of a batch meet.

In come the pool of a segment and the columns of a batch, out come the needs that each row meets, as a sparse list.

    row_needs         the needs of each column, put together row by row
    need_lookup       which needs a value meets, without trying all of them
    need_cache        which needs a value met before
    computed_needs    comparisons with arithmetic, or of two attributes
    segment_needs     the pool of a segment, evaluated on a batch
"""
