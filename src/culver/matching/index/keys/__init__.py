"""Keys: from the columns of a batch to 64-bit keys.

In comes an Arrow batch of events, out come a key for each dimension and row, and whether there is one. Kernels read
the columns from memory themselves; Python sees no value.

    literals         where a string stands among the sorted literals of a segment
    key_kernels      programs that say which columns the keys of a dimension come from, and the kernel that runs them
    batch_columns    one batch: its keys, strings and attributes, each turned once
    portable_keys    keys and hashes that mean the same in every segment, for a placement
"""
