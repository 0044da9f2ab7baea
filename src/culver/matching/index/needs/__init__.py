"""Needs: which constraints that are no interval the rows of a batch meet.

In come the pool of a segment and the columns of a batch, out come the needs that each row meets, as a sparse list.
"""
