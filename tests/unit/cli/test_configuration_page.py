"""docs/configuration.md and the options of `culver serve` say what the program does."""

import re
import tomllib
from operator import attrgetter
from pathlib import Path

import pytest

from culver.cli import main
from culver.config import Settings, known_settings, load

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
ROW = re.compile(r"^\| `([a-z_.]+)` \| `([^`]*)` \| \S", re.MULTILINE)


def _rows() -> dict[str, str]:
    return dict(ROW.findall(PAGE.read_text(encoding="utf-8")))


def test_every_setting_is_described_and_no_other() -> None:
    assert sorted(_rows()) == sorted(known_settings())


@pytest.mark.parametrize("name", sorted(known_settings()))
def test_the_default_on_the_page_is_the_default(name: str) -> None:
    default = attrgetter(name)(Settings())
    assert _rows()[name] == (str(default).lower() if isinstance(default, bool) else str(default))


def test_the_file_on_the_page_is_understood(tmp_path: Path) -> None:
    found = re.search(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    tomllib.loads(found[1])
    path = tmp_path / "culver.toml"
    path.write_text(found[1], encoding="utf-8")
    assert load(path, {}).pipeline.spark_master == "spark://head:7077"


def test_the_help_of_serve_names_the_real_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    settings = Settings()
    for default in (
        settings.pipeline.engine,
        settings.pipeline.spark_master,
        settings.gateway.host,
        settings.gateway.port,
        settings.data_dir,
    ):
        assert f"[default: {default}]" in text
