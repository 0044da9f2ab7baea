"""`culver setup`."""

import pytest

from culver.cli import main
from culver.cli.commands import setup_command


def test_the_setup_says_where_the_kernels_are_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup_command, "_record_spark_classes", lambda: None)
    assert main(["setup"]) == 0
    assert capsys.readouterr().out.startswith("Culver is set up; its compiled kernels are kept in /")
