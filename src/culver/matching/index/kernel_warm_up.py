"""Loading every kernel before the first event."""

import numpy as np
import pyarrow as pa

from culver.matching.encoded.encoded_filter import EncodedFilter
from culver.matching.encoded.predicate_summary import PredicateSummary
from culver.matching.filter_texts import predicate_of
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.compile.key_lines import KeyLine
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.keys.portable_keys import event_hashes, event_keys
from culver.matching.index.results import grouping
from culver.matching.index.results.gatherer import Gatherer
from culver.matching.index.search.columnar_matcher import ColumnarMatcher
from culver.matching.index.segments.columnar_segment import segment_in_memory
from culver.matching.index.segments.segment_file import SegmentView
from culver.model import ENCODED, Domain, Event
from culver.model.columns import encode as encode_events
from culver.model.language import (
    Between,
    Constant,
    Constraint,
    Contains,
    OneOf,
    Pattern,
    PatternShape,
    Predicate,
)


def warm_up() -> None:
    """Load all kernels, in every signature that matching uses. That takes up to a second from the cache on disk, and
    some seconds where they must be compiled first. Harmless to call again."""
    suffix = Pattern("text", PatternShape.SUFFIX, "b", ("%", "b"), (True, False))
    constraints: list[Constraint] = [
        Between("number", Domain.NUMBER, 0, True, 1, True),
        OneOf("text", Domain.STRING, ("ab",)),
        suffix,
        OneOf("number", Domain.NUMBER, tuple(range(99))),  # too many for terms
        Contains("list", "a"),
    ]
    entries = [
        Entry(number, Predicate("", Constant(True), ((constraint,),)))
        for number, constraint in enumerate(constraints)
    ]
    grouping.load()
    # Two segments, so that their results are joined.
    views = [SegmentView(segment_in_memory(compile_entries(entries))) for _ in range(2)]
    batch: pa.RecordBatch
    for batch in encode_events([Event({}, {"number": 1, "text": "ab", "list": ("a",)}, b"{}")], 0):
        ColumnarMatcher(views).match(BatchColumns(batch), 0)
        BatchColumns(batch).payload_sizes()
        Gatherer().find(views[0], BatchColumns(batch), np.zeros(1, np.uint16), 0).part()
        event_keys(BatchColumns(batch), ("text", KeyLine.STRINGS))
        event_hashes(BatchColumns(batch), ("text", KeyLine.STRINGS))
        _warm_up_encoded(batch, constraints)


def _warm_up_encoded(batch: pa.RecordBatch, constraints: list[Constraint]) -> None:
    summary = PredicateSummary()
    for number, constraint in enumerate(constraints):
        summary.add(number, ((constraint,),))
    encoded = EncodedFilter()
    encoded.add([(0, predicate_of(summary.encode().text, ENCODED))])
    encoded.match(batch)
