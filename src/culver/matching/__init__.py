"""Matching: which subscriptions an event satisfies."""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names

if TYPE_CHECKING:
    from culver.matching.filter import Filter as Filter
    from culver.matching.filters.columnar import ColumnarFilter as ColumnarFilter
    from culver.matching.groups import (
        MOST_EVENTS as MOST_EVENTS,
        Found as Found,
        Groups as Groups,
        Rows as Rows,
        Runs as Runs,
    )
    from culver.matching.index.compile.bulk_compiler import compile_rows as compile_rows
    from culver.matching.index.compile.bulk_plan import compiles_by_column as compiles_by_column
    from culver.matching.index.compile.clause_table import (
        ClauseTable as ClauseTable,
        Dimension as Dimension,
        concatenate as concatenate,
        select_clauses as select_clauses,
        select_registrations as select_registrations,
        starts as starts,
    )
    from culver.matching.index.compile.compiler import Entry as Entry
    from culver.matching.index.compile.key_lines import (
        INT64_MAX as INT64_MAX,
        INT64_MIN as INT64_MIN,
        Line as Line,
        real_keys as real_keys,
        real_of_key as real_of_key,
        reals_of_keys as reals_of_keys,
    )
    from culver.matching.index.keys.batch_columns import BatchColumns as BatchColumns
    from culver.matching.index.keys.portable_keys import (
        event_hashes as event_hashes,
        event_keys as event_keys,
        mixed as mixed,
        point_hashes as point_hashes,
        term_bounds as term_bounds,
    )
    from culver.matching.index.results.grouping import (
        Grouping as Grouping,
        count_pairs as count_pairs,
        finish as finish,
        lay_out as lay_out,
        sorted_groups as sorted_groups,
    )
    from culver.matching.index.results.listed_matches import Listed as Listed
    from culver.matching.index.search.buffer_pool import room_for as room_for
    from culver.matching.index.search.columnar_matcher import Part as Part
    from culver.matching.index.search.text_matcher import Done as Done
    from culver.matching.index.segments.columnar_segment import in_memory as in_memory
    from culver.matching.index.storage.compaction import Compaction as Compaction
    from culver.matching.index.storage.index_writer import IndexWriter as IndexWriter
    from culver.matching.index.storage.partitioner import (
        ANYWHERE as ANYWHERE,
        Slicing as Slicing,
        Undivided as Undivided,
    )
    from culver.matching.index.storage.version_files import (
        Index as Index,
        Memory as Memory,
        counts_in as counts_in,
        placed_in as placed_in,
        versions_in as versions_in,
    )
    from culver.matching.index.warm_up import warm_up as warm_up
else:
    __getattr__ = lazy_names(__name__)
