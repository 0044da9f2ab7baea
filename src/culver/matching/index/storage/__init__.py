"""Storage: versions of an index in a directory.

In come changes of the registry: registrations that come and end. Out come versions, which never change and which any
number of processes open.

    partitioner      which sets of segments a registration belongs to
    version_files    the manifest of a version: the segments that it names, and what has ended of them
    merge_policy     which segments to merge
    compaction       merges them, beside everything else; deals them out to other sets
    index_writer     makes versions
    index_reader     opens one and matches events against it
"""
