"""Search: events against segments.

In come a batch of events and some segments, out come the registrations that each event matches. A batch goes through
a segment in tiles of 128 events.

    bucket_search       from events to buckets: clauses that match, and chunks to search
    box_search          from chunks to boxes that match, as masks of 64
    match_kernels       from both to numbers of registrations, for one segment or several
    buffer_pool         memory for results
    columnar_matcher    matches a batch against several columnar segments
    text_matcher        matches a batch against segments of other schemes
"""
