"""Packs rows into a record batch and the bytes of its Arrow IPC stream at once.

Arrow would make arrays of the rows, a batch of the arrays and bytes of the batch. For a few events, which come a
thousand times a second, that takes half as long again as writing the bytes here and letting Arrow find the batch in
them. They are the bytes that Arrow's own writer makes of the batch:

    stream     | schema | message | end |                      the schema is the same for all batches of a layout
    message    | -1 | size of the head | head | body |
    head       | ... | size of the body | ... | rows | places | nodes |        a flatbuffer
    places     | 0 | count | start in the body, size | ...     of each buffer
    nodes      | 0 | count | rows, empty ones | ...            of each column, and of the members of its lists
    body       the buffers of each column, each padded to 8 bytes; integers are little-endian

    column     | validity bits, none where no cell is empty | values |
               | validity | where each string starts, and the last ends | bytes |
               | validity | where each list starts, and the last ends | no validity | starts | bytes |
"""

import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat
from typing import Any, NamedTuple

import pyarrow as pa

from culver.model.values import Kind, Timestamp

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"

# The tables of the flatbuffer say where each member of a Message (of version 5) and of a RecordBatch is. They are the
# same for every batch that has rows.
_HEAD = struct.Struct("<iI32sq16siiqii")
_MESSAGE_TABLE = bytes.fromhex("1400000000000000 0c00160006000500 08000c000c000000 0003040018000000")
_BATCH_TABLE = bytes.fromhex("00000a0018000c00 040008000a000000")
# Without the contents of places and nodes.
_HEAD_BYTES = 88
_COUNT = struct.Struct("<ii")
_PADDING = tuple(bytes(-size % 8) for size in range(8))

_ALL_FILLED = repeat(None)
# The validity bits of a column without empty cells.
_FULL = b""
_LIST_BUFFERS = 5
_DIGITS = bytes.maketrans(b"\x00\x01", b"01")

_Buffers = tuple[bytes, ...]


class Packed(NamedTuple):
    """A batch whose columns point into its Arrow IPC stream."""

    batch: pa.RecordBatch
    stream: bytes


class ColumnType(NamedTuple):
    """The type of a column: `pack` turns its cells into buffers, and an empty cell holds `neutral`."""

    arrow: pa.DataType
    pack: Callable[[Sequence[Any]], _Buffers]
    neutral: Any


class Layout:
    """Makes batches with one schema, given as the names and types of its columns."""

    def __init__(self, columns: Sequence[tuple[str, ColumnType]]) -> None:
        self.schema = pa.schema([(name, kind.arrow) for name, kind in columns])
        self._schema_message = self.schema.serialize().to_pybytes()
        self.neutral_row = tuple(kind.neutral for _, kind in columns)
        self._packs = [kind.pack for _, kind in columns]

    def pack(self, rows: Sequence[Sequence[Any]], filled: Iterable[int | None] = _ALL_FILLED) -> Packed:
        """Pack one or more rows. `filled` tells for each column which cells are not empty, row n by bit n, or None
        for all. An empty cell must hold the value that it has in `neutral_row`."""
        # Hot, for a few rows too.
        count = len(rows)
        buffers: list[bytes] = []
        places: list[int] = []
        nodes: list[int] = []
        end = 0
        for pack, cells, there in zip(self._packs, zip(*rows, strict=True), filled, strict=False):
            own = pack(cells)
            nodes += (count, 0)
            if there is not None and there.bit_count() < count:
                nodes[-1] = count - there.bit_count()
                own = (there.to_bytes((count + 7) // 8, "little"), *own[1:])
            if len(own) == _LIST_BUFFERS:
                nodes += (len(own[3]) // 4 - 1, 0)
            for buffer in own:
                size = len(buffer)
                places += (end, size)
                if size:
                    buffers.append(buffer)
                    end += size
                    if end & 7:
                        buffers.append(_PADDING[end & 7])
                        end = (end + 7) & ~7
        head = _HEAD.pack(
            -1, _HEAD_BYTES + 8 * len(places) + 8 * len(nodes), _MESSAGE_TABLE, end, _BATCH_TABLE,
            28 + 8 * len(places), 16,  # from here to the nodes, and to the places
            count, 0, len(places) // 2,
        )  # fmt: skip
        stream = b"".join(
            (
                self._schema_message,
                head,
                array("q", places).tobytes(),
                _COUNT.pack(0, len(nodes) // 2),
                array("q", nodes).tobytes(),
                *buffers,
                END_OF_STREAM,
            )
        )
        message = pa.py_buffer(stream).slice(len(self._schema_message))
        return Packed(pa.ipc.read_record_batch(message, self.schema), stream)


def _integers(cells: Sequence[int]) -> _Buffers:
    return _FULL, array("q", cells).tobytes()


def _reals(cells: Sequence[float]) -> _Buffers:
    return _FULL, array("d", cells).tobytes()


def _moments(cells: Sequence[Timestamp]) -> _Buffers:
    return _FULL, array("q", [cell.microseconds for cell in cells]).tobytes()


def _booleans(cells: Sequence[bool]) -> _Buffers:
    digits = bytes(cells)[::-1].translate(_DIGITS)
    return _FULL, int(digits, 2).to_bytes((len(cells) + 7) // 8, "little")


def _binaries(cells: Sequence[bytes]) -> _Buffers:
    return _FULL, _starts(cells), b"".join(cells)


def _strings(cells: Sequence[str]) -> _Buffers:
    return _binaries([cell.encode() for cell in cells])


def _lists(cells: Sequence[tuple[str, ...]]) -> _Buffers:
    return _FULL, _starts(cells), *_strings([member for cell in cells for member in cell])


def _starts(cells: Sequence[Any]) -> bytes:
    return array("i", accumulate(map(len, cells), initial=0)).tobytes()


BINARY = ColumnType(pa.binary(), _binaries, b"")
COLUMN_TYPES = {
    Kind.INTEGER: ColumnType(pa.int64(), _integers, 0),
    Kind.REAL: ColumnType(pa.float64(), _reals, 0.0),
    Kind.STRING: ColumnType(pa.string(), _strings, ""),
    Kind.BOOLEAN: ColumnType(pa.bool_(), _booleans, False),
    Kind.STRINGS: ColumnType(pa.list_(pa.string()), _lists, ()),
    Kind.TIMESTAMP: ColumnType(pa.int64(), _moments, Timestamp(0)),
}
