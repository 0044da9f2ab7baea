"""Storage: versions of an index in a directory.

In come changes of the registry: registrations that come and end. Out come versions, which never change and which any
number of processes open.

    tombstones       which registrations of a segment have ended
    partitioner      which sets of segments a registration belongs to
    version_files    the manifest of a version, and the segments that it names
    merge_policy     which segments to merge
    segment_merge    merging them, and dealing them out to other sets
    compaction       a merge beside everything else
    index_writer     makes versions
    index_reader     opens one and matches events against it
"""
