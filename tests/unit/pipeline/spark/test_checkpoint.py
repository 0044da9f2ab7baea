"""Which checkpoints a query is not started from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from culver.pipeline.spark.checkpoint import damage_in, set_aside

OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"offset": %d, "index_version": 1, "slices": 1, "start_up": 1}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches 7 and 8 are committed, 9 has begun; those before are deleted."""
    made = tmp_path / "checkpoint"
    for name in ("offsets", "commits"):
        (made / name).mkdir(parents=True)
    (made / "metadata").write_text('{"id":"ce82b64a-39a8-4dca-b89c-5e11ac7115c3"}')
    for batch in (7, 8, 9):
        (made / "offsets" / str(batch)).write_text(OFFSETS % (batch * 100))
    for batch in (7, 8):
        (made / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (made / "offsets" / ".10.5f0c.tmp").write_text("v1\n{")
    return made


def test_whole_checkpoint_and_one_that_has_not_begun_are_used(checkpoint: Path, tmp_path: Path) -> None:
    assert damage_in(checkpoint) is None
    (checkpoint / "commits" / "9").write_text("v1\n{}")
    assert damage_in(checkpoint) is None
    assert damage_in(tmp_path / "none") is None
    (tmp_path / "new" / "offsets").mkdir(parents=True)
    assert damage_in(tmp_path / "new") is None


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)))


def other_json(path: Path) -> None:
    path.write_text('v1\n{}\n{"file": "a"}' if path.parent.name == "offsets" else "v1\n5")


@pytest.mark.parametrize("damage", [cut, empty, garbage, other_json])
@pytest.mark.parametrize("name", ["metadata", "offsets/9", "offsets/8", "commits/8"])
def test_damaged_file_is_named(checkpoint: Path, name: str, damage: Callable[[Path], None]) -> None:
    damage(checkpoint / name)
    found = damage_in(checkpoint)
    assert found is not None
    assert str(checkpoint / name) in found


@pytest.mark.parametrize("name", ["metadata", "offsets/8", "commits/8"])
def test_missing_file_is_named(checkpoint: Path, name: str) -> None:
    (checkpoint / name).unlink()
    assert damage_in(checkpoint) == f"{checkpoint / name} is missing"


@pytest.mark.parametrize("left", [[7], []])
def test_commits_without_their_offsets_are_damage(checkpoint: Path, left: list[int]) -> None:
    for batch in {7, 8, 9} - set(left):
        (checkpoint / "offsets" / str(batch)).unlink()
    expected = f"{checkpoint / 'offsets' / '8'} is missing, though it was committed"
    assert damage_in(checkpoint) == expected


def test_checkpoint_takes_the_place_of_one_that_was_set_aside_before(checkpoint: Path) -> None:
    earlier = checkpoint.with_name("checkpoint.unusable")
    (earlier / "offsets" / "1").mkdir(parents=True)
    assert set_aside(checkpoint) == earlier
    assert not checkpoint.exists()
    assert (earlier / "commits" / "8").exists()
    assert not (earlier / "offsets" / "1").exists()
