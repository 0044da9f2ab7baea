from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from culver.errors import StorageCorrupt
from culver.matching.index.segments import container

ARRAYS: dict[str, NDArray[Any]] = {
    "long": np.arange(5, dtype=np.int64),
    "none": np.empty(0, np.int64),
    "short": np.arange(7, dtype=np.int32),
    "bytes": np.frombuffer(b"abc", np.uint8),
}


def write(path: Path) -> bytes:
    container.write(path, container.encode("thing", {"name": "é"}, ARRAYS))
    return path.read_bytes()


def test_arrays_come_back_aligned_and_read_only(tmp_path: Path) -> None:
    write(tmp_path / "file")
    opened = container.read(tmp_path / "file")
    assert (opened.kind, opened.meta) == ("thing", {"name": "é"})
    assert list(opened.arrays) == list(ARRAYS)
    for name, array in opened.arrays.items():
        assert array.dtype == ARRAYS[name].dtype
        assert array.tolist() == ARRAYS[name].tolist()
        assert not array.flags.writeable
        assert array.flags.aligned


def test_any_flipped_bit_is_noticed(tmp_path: Path) -> None:
    data = write(tmp_path / "file")
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(StorageCorrupt, match="some file"):
            container.decode(memoryview(bytes(damaged)), "some file")


def test_any_shortened_file_is_noticed(tmp_path: Path) -> None:
    data = write(tmp_path / "file")
    for length in range(1, len(data), 7):
        (tmp_path / "torn").write_bytes(data[:length])
        with pytest.raises(StorageCorrupt, match="torn"):
            container.read(tmp_path / "torn")


def test_an_empty_file_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageCorrupt, match="file is empty"):
        container.read(tmp_path / "file")


def test_an_unknown_format_asks_for_a_rebuild(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "file"))
    data[8] = 99
    with pytest.raises(StorageCorrupt, match=r"format 99.*rebuilt"):
        container.decode(memoryview(bytes(data)), "file")


def test_only_known_types_of_arrays_are_written() -> None:
    with pytest.raises(TypeError, match="array odd"):
        container.encode("thing", {}, {"odd": np.zeros(2, np.float32)})


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = write(tmp_path / "file")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="no space"):
        container.write(tmp_path / "file", [b"other"])
    assert (tmp_path / "file").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
