"""The matcher by itself: filters in, ids of matching filters out, without a site.

    events of Python ---- event_values ----.                      .---> ids (id_table), lists and pairs (match_lists)
                                            +--> matching's filter
    tables -- frames -- column_mapping ----'     |
                                                 '---> one file: the compiled filter, ids, texts (text_table)

`column_mapping` is the one place that says what the types of Arrow mean.
"""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names

if TYPE_CHECKING:
    from culver.matcher.column_mapping import ColumnMapping as ColumnMapping
    from culver.matcher.matcher import Matcher as Matcher
else:
    __getattr__ = lazy_names(__name__)
