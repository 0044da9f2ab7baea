"""Keys: from the columns of a batch to 64-bit keys.

In comes an Arrow batch of events, out come a key for each dimension and row, and whether there is one. Kernels read
the columns from memory themselves; Python sees no value.
"""
