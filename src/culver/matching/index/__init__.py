"""The compiled index: immutable segments in files, versions that name them, and kernels that match.

compiler   predicates -> clause table          container   file format
table      clauses in columns, merging         segment     a compiled segment
layout     clause table <-> segment arrays     snapshot    versions; reading one (Index)
columns    a batch as keys                     writer      making versions (IndexWriter)
residual   what is no interval                 tiers       which segments to merge
kernels    the inner loops                     compaction  merging segments beside everything else
matcher    a batch against segments            tombstones  what has ended in a segment

Under `residual`: lookups (which needs a value meets), recall (which it met before), arithmetic (needs that
compute), held (needs per row).
"""

from culver.matching.index.compiler import Entry
from culver.matching.index.snapshot import Index
from culver.matching.index.writer import IndexWriter

__all__ = ["Entry", "Index", "IndexWriter"]
