"""The compiled index: from clauses to files, and from events to matches.

    predicates                                                     events, an Arrow batch
        |  compile      clauses in columns                             |  keys       a 64-bit key for each value
        v                                                              |  needs      what is no interval
    ClauseTable                                                        |
        |  layout       arrays that an event searches quickly          |
        v                                                              v
    SegmentArrays --- segments: a file, mapped by any number of processes --- search --> Matches, event by event
                                   |                                             |
                                   |                                             '-- results --> Groups, by
                                   v                                                             registration
                        storage: versions that name segments; IndexWriter makes them, Index reads one

The rooms, from the lowest up. Each depends on lower ones only, and its own page says what comes in and what goes out.

    intrinsics    what kernels need of the processor: vectors of 64, memory by address
    compile       predicates -> clause table
    layout        clause table -> arrays of a segment, and back
    keys          batches of events -> keys
    needs         batches of events -> the needs that each row meets
    segments      a segment in a file
    search        events against segments
    results       matches by registration
    storage       versions, writing, merging, reading
    kernel_warm_up    loads every kernel before the first event
"""
