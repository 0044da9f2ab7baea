"""Making the content of one segment out of several, and dealing segments out to other sets.

Dividing an index anew refills some sets and leaves the others as they are:

    before    set 0: A B C    set 1: B C D    set 2: E          set 1 is split into two
    after     set 0: A B C    set 1: B C      set 2: E    set 3: C D
                              \\______ from the registrations of the old set 1 ______/
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.compile.clause_table import ClauseTable, first_of_runs
from culver.matching.index.segments.segment_file import Content
from culver.matching.index.segments.segment_view import merge_columnar, merge_texts
from culver.matching.index.segments.text_segment import Texts, compile_texts
from culver.matching.index.storage.partitioner import Partitioner
from culver.matching.index.storage.version_files import StoredSegment, columnar_views, text_views

Integers = NDArray[np.int64]


def merge_segments(
    sources: Sequence[StoredSegment], horizon: int, added: Sequence[Content] = ()
) -> tuple[Content, Integers | None]:
    """Put together all registrations but those that ended at or below `horizon`, with those that are added. Also
    returns the position at which each has ended (None: none has). All must be of one scheme, and there must be
    something."""
    texts = [content for content in added if isinstance(content, Texts)]
    others = text_views(sources)
    if texts or others:
        return merge_texts(others, horizon, texts)
    tables = [content for content in added if isinstance(content, ClauseTable)]
    return merge_columnar(columnar_views(sources), horizon, tables)


def deal_out(
    sources: Sequence[StoredSegment], partitioner: Partitioner, changed: Sequence[int], horizon: int
) -> Iterator[tuple[int, Content, Integers | None]]:
    """For each set in `changed` and each scheme, yield what it is to hold of the registrations in `sources`, and the
    position at which each has ended (None: none has). What ended at or below `horizon` is left out."""
    for scheme in sorted({stored.segment.scheme for stored in sources}):
        content, until = merge_segments(
            [stored for stored in sources if stored.segment.scheme == scheme], horizon
        )
        once = first_of_runs(content.numbers)  # several sets may have held it
        content, until = select(content, once), None if until is None else until[once]
        held = partitioner.assign(compile_texts(content) if isinstance(content, Texts) else content)
        for place in changed:
            own = held[:, place]
            if own.any():
                yield place, select(content, own), None if until is None else until[own]


def select(content: Content, kept: NDArray[np.bool_]) -> Content:
    """Keep only the registrations that are marked."""
    return content if kept.all() else content.select_registrations(kept)
