"""Segments: some registrations, compiled, in one file that never changes.

    ClauseTable ----.                                       .---> ColumnarSegment ---.
                     +--> encode_segment --> a container ---+                        +--> SegmentView: the segment,
    Texts ----------'     open_segment maps the file        '---> TextSegment -------'    and what has ended of it

In comes what a segment is to hold: a clause table, or the texts of another scheme. Out comes a segment that is ready
to be searched, with its literals, its needs and its key programs, and that can give the table back for a merge.

    container           the file format: named arrays behind a checked header
    columnar_segment    a segment of compiled clauses
    text_segment        a segment of another scheme: filters as text, and the filter made of them
    segment_file        both kinds, told apart by what is in the file
    segment_view        a segment with the ends of its registrations; merging several
"""
