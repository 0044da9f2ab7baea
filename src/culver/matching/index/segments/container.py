"""The file format of the index: named arrays behind a checked header, ready to be memory-mapped.

    0    magic         "CULVIDX\\n"
    8    u32           format number (FORMAT)
    12   u32           length of the header
    16   u64           length of the whole file
    24   u32           crc32 of everything from the end of the header on
    28   u32           crc32 of bytes 0..28 and of the header
    32   header        JSON: {"kind": ..., "meta": {...}, "arrays": [[name, dtype, length, offset], ...]}
    ..   arrays        each at a multiple of 64 from the start of the file, little-endian, zeros between

Segments and manifests are both containers and differ in `kind`. A file appears under its name only when it is
complete and on disk, because the registry forgets what has ended once the index knows of it. Checksums tell whether a
file is damaged; an index that is, or has another format, is made again from the registry.
"""

import json
import mmap
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.disk import write_whole
from culver.errors import StorageCorrupt

FORMAT = 4
_MAGIC = b"CULVIDX\n"
_PREFIX = struct.Struct("<8sIIQI")
_CHECK = struct.Struct("<I")
_HEADER_AT = _PREFIX.size + _CHECK.size
_ALIGNMENT = 64
_DTYPES = {"u1", "<u2", "<i4", "<i8", "<f8"}


@dataclass(frozen=True, slots=True)
class Container:
    """A decoded container. The arrays are read-only views that keep the underlying buffer alive."""

    kind: str
    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def encode(kind: str, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[bytes]:
    """The container as a list of byte strings to be written one after another."""
    # The header holds the offsets, which its length decides. So it is laid out with room to spare first.
    rough = json.dumps(_header(kind, meta, arrays, 2**40), ensure_ascii=False).encode()
    body_at = _aligned(_HEADER_AT + len(rough))
    header = json.dumps(_header(kind, meta, arrays, body_at), ensure_ascii=False).encode()
    header = header.ljust(body_at - _HEADER_AT)
    body: list[bytes] = []
    crc, size = 0, body_at
    for array in arrays.values():
        data = array.tobytes()
        data += bytes(_aligned(len(data)) - len(data))
        crc = zlib.crc32(data, crc)
        size += len(data)
        body.append(data)
    prefix = _PREFIX.pack(_MAGIC, FORMAT, len(header), size, crc)
    return [prefix + _CHECK.pack(zlib.crc32(header, zlib.crc32(prefix))) + header, *body]


def decode(data: memoryview, source: str, *, check_body: bool = True) -> Container:
    """Check and open a container. Raises StorageCorrupt, naming `source`. Without `check_body` it trusts the arrays,
    which are nearly all of the file: for a file that this process has checked before."""
    if len(data) < _HEADER_AT:
        raise _corrupt(source, "is too short")
    magic, number, length, size, body_crc = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise _corrupt(source, "is not an index file")
    if number != FORMAT:
        raise _corrupt(source, f"has format {number}, and this version of Culver reads format {FORMAT}")
    if size != len(data) or _HEADER_AT + length > size:
        raise _corrupt(source, f"should have {size} bytes and has {len(data)}")
    header = bytes(data[_HEADER_AT : _HEADER_AT + length])
    (head_crc,) = _CHECK.unpack_from(data, _PREFIX.size)
    if zlib.crc32(header, zlib.crc32(data[: _PREFIX.size])) != head_crc:
        raise _corrupt(source, "fails the checksum of its header")
    if check_body and zlib.crc32(data[_HEADER_AT + length :]) != body_crc:
        raise _corrupt(source, "fails its checksum")
    document = json.loads(header)
    arrays: dict[str, NDArray[Any]] = {}
    for name, dtype, count, offset in document["arrays"]:
        if dtype not in _DTYPES:
            raise _corrupt(source, f"holds an array of unknown type {dtype}")
        arrays[name] = np.ndarray((count,), np.dtype(dtype), data, offset)
    return Container(document["kind"], document["meta"], arrays)


def read(path: Path, *, check_body: bool = True) -> Container:
    """Map a file and decode it. Raises FileNotFoundError, StorageCorrupt."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise _corrupt(str(path), "is empty")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return decode(memoryview(mapped), str(path), check_body=check_body)


def write(path: Path, pieces: Sequence[bytes]) -> None:
    """Put a file in place, on disk: a reader sees all of it or none, also after a power cut."""
    write_whole(path, pieces, durable=True)


def _header(
    kind: str, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], body_at: int
) -> dict[str, Any]:
    rows: list[list[Any]] = []
    offset = body_at
    for name, array in arrays.items():
        dtype = "u1" if array.dtype == np.uint8 else f"<{array.dtype.kind}{array.dtype.itemsize}"
        if dtype not in _DTYPES or array.dtype != np.dtype(dtype) or array.ndim != 1:
            raise TypeError(f"array {name} has type {array.dtype} and {array.ndim} dimensions")
        rows.append([name, dtype, len(array), offset])
        offset += _aligned(array.nbytes)
    return {"kind": kind, "meta": dict(meta), "arrays": rows}


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _corrupt(source: str, what: str) -> StorageCorrupt:
    remedy = "delete it and let the index be rebuilt from the registry"
    return StorageCorrupt(f"{source} {what}; {remedy}", damage=what)
