"""What goes into a segment, whichever its scheme: clauses of `columnar`, texts of the others. Never mixed."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.compile.clause_table import ClauseTable, select_registrations
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.search.columnar_matcher import FOREVER, merge_parts
from culver.matching.index.segments import columnar_segment, text_segment
from culver.matching.index.segments.text_segment import Texts, TextSegment
from culver.matching.index.storage.version_files import StoredPart
from culver.model import COLUMNAR

Content = ClauseTable | Texts


def scheme_of(content: Content) -> str:
    return content.scheme if isinstance(content, Texts) else COLUMNAR


def contents_of(entries: Sequence[Entry]) -> list[tuple[ClauseTable, Content]]:
    """Entries by scheme: their clauses, which a placement looks at, and what is to be stored."""
    by_scheme: dict[str, list[Entry]] = {}
    for entry in entries:
        by_scheme.setdefault(entry.scheme, []).append(entry)
    made: list[tuple[ClauseTable, Content]] = []
    for scheme, own in sorted(by_scheme.items()):
        table = compile_entries(own)
        made.append((table, table if scheme == COLUMNAR else text_segment.texts_of(scheme, own)))
    return made


def clauses_of(content: Content) -> ClauseTable:
    """What a placement looks at; texts are compiled again."""
    return compile_entries(text_segment.entries_of(content)) if isinstance(content, Texts) else content


def selected(content: Content, kept: NDArray[np.bool_]) -> Content:
    """Only the registrations that are marked."""
    if kept.all():
        return content
    if isinstance(content, Texts):
        return text_segment.select_texts(content, kept)
    return select_registrations(content, kept)


def merge(
    sources: Sequence[StoredPart], horizon: int, added: Sequence[Content] = ()
) -> tuple[Content, NDArray[np.int64] | None]:
    """All registrations but those that ended at or below `horizon`, with those that are added, and when each has
    ended (None: none has). All must be of one scheme, and there must be something."""
    tables = [content for content in added if not isinstance(content, Texts)]
    of_texts = [content for content in added if isinstance(content, Texts)]
    if not of_texts and not any(isinstance(source.segment, TextSegment) for source in sources):
        return merge_parts([source.part() for source in sources], horizon, *tables)
    untils: list[NDArray[np.int64]] = []
    parts: list[Texts] = []
    for source in sources:
        part = source.text_part()
        kept = part.until > horizon
        parts.append(text_segment.select_texts(part.segment.content(), kept))
        untils.append(part.until[kept])
    untils += [np.full(len(each.numbers), FOREVER) for each in of_texts]
    merged, origin = text_segment.concatenate_texts([*parts, *of_texts])
    ended = np.concatenate(untils)[origin]
    return merged, (ended if (ended != FOREVER).any() else None)


def encode(content: Content) -> list[bytes]:
    """The container of a segment."""
    return text_segment.encode(content) if isinstance(content, Texts) else columnar_segment.encode(content)
