"""The compiled index: immutable segments in files, versions that name them, and kernels that match.

compiler   predicates -> clause table           container   file format
bulk       rows of one prepared filter -> same   segment     a compiled segment
table      clauses in columns, merging           snapshot    versions; reading one (Index)
layout     clause table -> segment arrays        writer      making versions (IndexWriter)
restoring  and back                              compaction  merging segments beside everything else
chunks     boxes as trees of 64-way nodes        tiers       which segments to merge
order      which boxes lie near one another      tombstones  what has ended in a segment
columns    a batch as keys                       matcher     a batch against segments
literals   strings among a segment's literals    kernels     the inner loops
residual   what is no interval                   vectors     their vector instructions
portable   keys that mean the same everywhere    gathering   matches by registration as they are found
texts      segments of other schemes             gatherer    the same with memory that is used again
content    segments of any scheme                beside      matching with other schemes
listing    matches event by event, made small    grouping    those by registration

Under `residual`: lookups (which needs a value meets), recall (which it met before), arithmetic (needs that
compute), held (needs per row).
"""

from culver.matching.index.compile.bulk_compiler import compile_rows
from culver.matching.index.compile.bulk_plan import compiles_by_column
from culver.matching.index.compile.clause_table import ClauseTable, select_registrations
from culver.matching.index.compile.compiler import Entry
from culver.matching.index.storage.index_writer import IndexWriter
from culver.matching.index.storage.version_files import Index, Memory

__all__ = [
    "ClauseTable",
    "Entry",
    "Index",
    "IndexWriter",
    "Memory",
    "compile_rows",
    "compiles_by_column",
    "select_registrations",
]
