import os
from pathlib import Path

from culver.pipeline.head import Head, HeadFile, HeadTracker


def test_head_follows_the_log() -> None:
    tracker = HeadTracker(log_end=5, index_version=2, frontier=3)
    tracker.committed(9)
    assert tracker.head == Head(9, 2, 3)


def test_head_waits_at_the_position_of_a_registration_until_it_is_indexed() -> None:
    tracker = HeadTracker(log_end=70, index_version=4, frontier=70)
    assert tracker.register(version=5, log_end=70) == 70
    tracker.committed(95)
    assert tracker.head == Head(70, 4, 70)
    tracker.indexed(5, 5, 1)
    assert tracker.head == Head(95, 5, 70)


def test_a_compaction_moves_the_index_version_alone() -> None:
    tracker = HeadTracker(log_end=70, index_version=4, frontier=70)
    tracker.register(version=5, log_end=70)
    tracker.committed(95)
    tracker.indexed(4, 5, 1)
    assert tracker.head == Head(70, 5, 70)
    tracker.indexed(5, 6, 1)
    assert tracker.head == Head(95, 6, 70)


def test_a_version_that_is_divided_anew_brings_its_slices_along() -> None:
    tracker = HeadTracker(log_end=70, index_version=4, frontier=70, slices=2)
    tracker.indexed(4, 5, 3)
    assert tracker.head == Head(70, 5, 70, 3)
    tracker.indexed(3, 3, 2)
    assert tracker.head == Head(70, 5, 70, 3), "an older one changes nothing"


def test_registration_takes_effect_behind_everything_that_is_on_disk() -> None:
    tracker = HeadTracker(log_end=10, index_version=0, frontier=0)
    assert tracker.register(version=1, log_end=12) == 12, (
        "the log may know of a commit before the tracker does"
    )


def test_index_of_an_earlier_version_does_not_release_a_later_registration() -> None:
    tracker = HeadTracker(log_end=10, index_version=0, frontier=0)
    tracker.register(1, 10)
    tracker.committed(20)
    tracker.register(2, 20)
    tracker.committed(30)
    tracker.indexed(1, 1, 1)
    assert tracker.head == Head(20, 1, 0)


def test_withdrawn_registration_holds_nothing_back() -> None:
    tracker = HeadTracker(log_end=10, index_version=0, frontier=0)
    tracker.register(1, 10)
    tracker.withdraw(1)
    tracker.committed(11)
    assert tracker.head.log_end == 11


def test_nothing_goes_back() -> None:
    tracker = HeadTracker(log_end=10, index_version=5, frontier=7)
    tracker.committed(9)
    tracker.indexed(4, 4, 1)
    tracker.accepted(6)
    assert tracker.head == Head(10, 5, 7)


def test_head_file_carries_the_head_to_another_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "head"
    writer = HeadFile.create(path)
    reader = HeadFile.open(path)
    assert reader.read() is None
    writer.write(Head(2**40, 17, 2**39))
    assert reader.read() == Head(2**40, 17, 2**39)
    writer.close()
    reader.close()


def test_half_written_head_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "head"
    head_file = HeadFile.create(path)
    head_file.write(Head(1, 1, 1))
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, b"\xff", 9)
    os.close(descriptor)
    assert head_file.read() is None
    head_file.close()
