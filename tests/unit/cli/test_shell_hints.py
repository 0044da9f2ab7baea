import sys
from pathlib import Path

import pytest

from culver.cli.shell_hints import invocation, try_out_lines


def test_the_pasted_lines_name_the_site_only_where_it_is_not_the_default() -> None:
    assert try_out_lines("http://127.0.0.1:8080", ".venv/bin/culver", {})[1:5] == [
        "Paste this into a second terminal to subscribe:",
        '  .venv/bin/culver sub "price > 20"',
        "and this into a third one to publish:",
        """  .venv/bin/culver pub '{"symbol": "XYZ", "price": 21.5}'""",
    ]
    assert '  culver sub "price > 20" --url http://127.0.0.1:9000' in try_out_lines(
        "http://127.0.0.1:9000", "culver", {}
    )


def test_the_pasted_lines_name_the_site_where_the_environment_means_another() -> None:
    elsewhere = {"CULVER_URL": "http://elsewhere:1"}
    assert "--url http://127.0.0.1:8080" in "\n".join(
        try_out_lines("http://127.0.0.1:8080", "culver", elsewhere)
    )


def test_a_site_that_listens_everywhere_is_reached_on_this_machine() -> None:
    assert try_out_lines("http://0.0.0.0:8080", "culver", {})[2] == '  culver sub "price > 20"'
    assert "--url 'http://[::1]:81'" in try_out_lines("http://[::]:81", "culver", {})[2]


def test_the_program_is_named_as_a_shell_in_this_directory_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "my tools" / "culver"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert invocation([str(program)], tmp_path) == "culver"
    monkeypatch.setenv("PATH", "/nowhere")
    assert invocation([str(program)], tmp_path) == "'my tools/culver'"
    assert invocation([str(program)], Path("/")) == f"'{str(program)[1:]}'"
    assert invocation([str(program)], tmp_path / "else") == f"'{program}'"


def test_a_program_run_as_a_module_is_named_with_its_interpreter(tmp_path: Path) -> None:
    assert invocation(["/somewhere/culver/__main__.py"], tmp_path) == f"{sys.executable} -m culver"
