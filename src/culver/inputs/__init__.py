"""What programs hand over, in the forms that they have it in: events of Python values, and rows for a filter."""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names

if TYPE_CHECKING:
    from culver.inputs.plain_values import plain_value as plain_value, without_row as without_row
    from culver.inputs.row_table import RowsLike as RowsLike, as_table as as_table, is_a as is_a
else:
    __getattr__ = lazy_names(__name__)
