"""How many slices an index has when a site is started again with another setting."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from culver.config import LogSettings, PipelineSettings
from culver.control.index_division import open_index
from culver.log.file_log import FileLog
from culver.matching.index import Entry
from culver.model.language.parser import parse


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FileLog]:
    with FileLog(tmp_path / "log", LogSettings()) as opened:
        yield opened


def slices_after(tmp_path: Path, log: FileLog, placement: str, *wanted: int) -> int:
    """Of an index that is opened with one number of slices after the other."""
    for slices in wanted:
        settings = PipelineSettings(engine="inline", placement=placement, slices=slices)
        writer, choice = open_index(tmp_path / "index", settings, 1, log, 1)
        assert choice.slices == writer.placed.slices
        if not writer.version:
            writer.publish(1, [Entry(n, parse(f"x > {n}")) for n in range(20)], [], 0)
    return writer.placed.slices


def test_an_index_that_is_divided_while_it_is_used_keeps_its_slices_and_says_so(
    tmp_path: Path, log: FileLog, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert slices_after(tmp_path, log, "mpartition", 3, 3) == 3
        assert caplog.messages == []
        assert slices_after(tmp_path, log, "mpartition", 5) == 3
    assert caplog.messages == [
        "the index keeps its 3 slices, though pipeline.slices says 5; culver slices adds and removes"
    ]


def test_another_index_is_made_again_with_as_many_as_are_asked_for(tmp_path: Path, log: FileLog) -> None:
    assert slices_after(tmp_path, log, "hashed", 3, 5) == 5
