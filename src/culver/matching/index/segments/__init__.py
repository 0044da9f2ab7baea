"""Segments: some registrations, compiled, in one file that never changes.

    ClauseTable ----.                                       .---> ColumnarSegment ---.
                     +--> encode_segment --> a container ---+                        +--> SegmentView: the segment,
    Texts ----------'     open_segment maps the file        '---> TextSegment -------'    and what has ended of it

In comes what a segment is to hold: a clause table, or the texts of another scheme. Out comes a segment that is ready
to be searched, with its literals, its needs and its key programs, and that can give the table back for a merge.
"""
