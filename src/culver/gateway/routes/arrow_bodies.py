"""Reads an Arrow IPC stream in a request's body, and refuses compressed batches.

A compressed batch may be a thousand times larger than what was sent, and Arrow expands it before anybody can ask
how large it is. So each message's head (a FlatBuffers table, see "Encapsulated message format" in the specification
of Arrow's columnar format) is inspected first, and a compressed one is refused.
"""

import struct

import pyarrow as pa

from culver.errors import InvalidRequest

_HEADER_TYPE, _HEADER = 1, 2  # fields of a Message
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # values of its header type
_DICTIONARY_DATA = 1  # field of a DictionaryBatch: a RecordBatch
_COMPRESSION = 3  # field of a RecordBatch


def read_table(body: bytes) -> pa.Table:
    """The table of a stream. Raises InvalidRequest."""
    try:
        for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)):
            if _is_compressed(message.metadata.to_pybytes()):
                raise InvalidRequest(
                    "the batches of the stream are compressed; send them as they are", field="body"
                )
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, UnicodeError, struct.error) as exc:
        raise InvalidRequest(f"the body is not an Arrow IPC stream: {exc}", field="body") from exc
    return table


def _is_compressed(metadata: bytes) -> bool:
    message = struct.unpack_from("<I", metadata)[0]
    kind = _field(metadata, message, _HEADER_TYPE)
    header = _field(metadata, message, _HEADER)
    if kind is None or header is None:
        return False
    table = _follow(metadata, header)
    match metadata[kind]:
        case value if value == _RECORD_BATCH:
            return _field(metadata, table, _COMPRESSION) is not None
        case value if value == _DICTIONARY_BATCH:
            data = _field(metadata, table, _DICTIONARY_DATA)
            return data is not None and _field(metadata, _follow(metadata, data), _COMPRESSION) is not None
    return False


def _field(metadata: bytes, table: int, number: int) -> int | None:
    """Where a field of a table is; None where it has none. A table begins with the distance back to its directory:
    two lengths, then where each field is."""
    directory = table - struct.unpack_from("<i", metadata, table)[0]
    if directory < 0:
        raise struct.error("a directory before the beginning")
    size = struct.unpack_from("<H", metadata, directory)[0]
    if 4 + 2 * number >= size:
        return None
    offset = struct.unpack_from("<H", metadata, directory + 4 + 2 * number)[0]
    return table + offset if offset else None


def _follow(metadata: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", metadata, at)[0])
