"""Texts in two arrays, as a file holds them and as Arrow takes them without a copy."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from culver.jit import Bytes, Integers


class PackedTexts:
    """Text i is data[starts[i] : starts[i + 1]]; `starts` has one entry more than there are texts."""

    def __init__(self, starts: Integers, data: Bytes) -> None:
        self.starts = starts
        self.data = data

    @classmethod
    def of(cls, texts: Sequence[str]) -> "PackedTexts":
        encoded = [text.encode() for text in texts]
        starts = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=starts[1:])
        return cls(starts, np.frombuffer(b"".join(encoded), np.uint8))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, place: int) -> str:
        return self.data[self.starts[place] : self.starts[place + 1]].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.array().to_pylist())

    def array(self) -> pa.Array:
        """The texts as a `large_string` array, which shares the memory."""
        buffers = [None, pa.py_buffer(self.starts), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_string(), len(self), buffers)
