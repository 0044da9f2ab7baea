"""Matching: which subscriptions an event satisfies.

`filters/` match subscriptions in memory. `index/` draws the way from clauses to files to matches. `encoded/` and
`exact/` have what sites tell one another about their subscriptions.
"""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names

if TYPE_CHECKING:
    from culver.matching.encoded.encoded_filter import EncodedFilter as EncodedFilter
    from culver.matching.encoded.encoded_predicate import (
        NOTHING as NOTHING,
        EncodedPredicate as EncodedPredicate,
    )
    from culver.matching.encoded.predicate_delta import (
        PredicateDelta as PredicateDelta,
        apply_delta as apply_delta,
        delta as delta,
    )
    from culver.matching.encoded.predicate_summary import PredicateSummary as PredicateSummary
    from culver.matching.exact.exact_predicate import ExactPredicate as ExactPredicate
    from culver.matching.exact.exact_summary import ExactSummary as ExactSummary
    from culver.matching.exact.site_predicate import (
        SitePredicate as SitePredicate,
        read_predicate as read_predicate,
    )
    from culver.matching.filter import (
        MOST_EVENTS as MOST_EVENTS,
        Filter as Filter,
        Found as Found,
        Groups as Groups,
        Matched as Matched,
        Matches as Matches,
        MatchList as MatchList,
        Rows as Rows,
    )
    from culver.matching.filter_texts import predicate_of as predicate_of
    from culver.matching.filters.columnar import ColumnarFilter as ColumnarFilter
    from culver.matching.filters.filter_file import (
        FilterFile as FilterFile,
        read_filter as read_filter,
        write_filter as write_filter,
    )
    from culver.matching.index.compile.bulk_compiler import (
        compile_rows as compile_rows,
        compiles_by_column as compiles_by_column,
    )
    from culver.matching.index.compile.clause_table import ClauseTable as ClauseTable, Dimension as Dimension
    from culver.matching.index.compile.compiler import Entry as Entry
    from culver.matching.index.compile.key_lines import (
        HIGHEST_KEY as HIGHEST_KEY,
        LOWEST_KEY as LOWEST_KEY,
        KeyLine as KeyLine,
        real_keys as real_keys,
        real_of_key as real_of_key,
        reals_of_keys as reals_of_keys,
    )
    from culver.matching.index.kernel_warm_up import warm_up as warm_up
    from culver.matching.index.keys.batch_columns import BatchColumns as BatchColumns
    from culver.matching.index.keys.portable_keys import (
        event_hashes as event_hashes,
        event_keys as event_keys,
        hash_keys as hash_keys,
        term_bounds as term_bounds,
        term_hashes as term_hashes,
    )
    from culver.matching.index.results.grouping import Grouping as Grouping, pooled_rows as pooled_rows
    from culver.matching.index.search.columnar_matcher import ColumnarMatcher as ColumnarMatcher
    from culver.matching.index.storage.compaction import Compaction as Compaction
    from culver.matching.index.storage.index_reader import Index as Index, SearchMemory as SearchMemory
    from culver.matching.index.storage.index_writer import IndexWriter as IndexWriter
    from culver.matching.index.storage.partitioner import ANYWHERE as ANYWHERE, Partitioner as Partitioner
    from culver.matching.index.storage.version_files import (
        index_versions as index_versions,
        read_division as read_division,
    )
else:
    __getattr__ = lazy_names(__name__)
