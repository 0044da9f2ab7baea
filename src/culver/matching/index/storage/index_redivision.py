"""Dividing an index anew: the registrations of some sets are dealt out to others, and all other sets stay.

before    set 0: A B C    set 1: B C D    set 2: E          set 1 is split into two
after     set 0: A B C    set 1: B C      set 2: E    set 3: C D
                          \\______ from the registrations of the old set 1 ______/
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.storage.partitioner import Slicing
from culver.matching.index.storage.segment_content import Content, clauses_of, merge, selected
from culver.matching.index.storage.version_files import StoredPart


def dealt_out(
    parts: Sequence[StoredPart], slicing: Slicing, changed: Sequence[int], horizon: int
) -> Iterator[tuple[int, Content, NDArray[np.int64] | None]]:
    """For each set in `changed` and each scheme, what it is to hold of the registrations in `parts`, and when each
    has ended (None: none has). What ended at or below `horizon` is left out."""
    for scheme in sorted({stored.segment.scheme for stored in parts}):
        content, until = merge([stored for stored in parts if stored.segment.scheme == scheme], horizon)
        once = np.diff(content.numbers, prepend=-1) > 0  # one may be in several of the sets
        content, until = selected(content, once), None if until is None else until[once]
        held = slicing.assign(clauses_of(content))
        for place in changed:
            mine = held[:, place]
            if mine.any():
                yield place, selected(content, mine), None if until is None else until[mine]
