"""`culver serve` on a stand-in for the site; the real one is started by the system tests."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from culver.cli import main
from culver.config import OverlaySettings, Settings
from culver.errors import InvalidConfiguration


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings of each site that was started."""
    settings_of: list[Settings] = []

    def run_site(
        settings: Settings,
        progress: Callable[[str], None],
        on_ready: Callable[[str, str | None, str | None], None],
    ) -> int:
        settings_of.append(settings)
        if settings.pipeline.spark_master == "nowhere":
            raise InvalidConfiguration("there is no java here;\ninstall Java 17")
        progress("starting Spark (JVM)")
        ui = "http://127.0.0.1:4040" if settings.pipeline.spark_ui else None
        overlay = f"Site {settings.overlay.name} listens" if settings.overlay.is_on else None
        on_ready(f"http://{settings.gateway.host}:{settings.gateway.port}", ui, overlay)
        return 0

    assembly = ModuleType("culver.assembly")
    assembly.run_site = run_site  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "culver.assembly", assembly)
    return settings_of


def test_without_options_the_settings_are_the_defaults(
    started: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve"]) == 0
    assert started == [Settings()]
    shown = capsys.readouterr()
    assert "starting Spark (JVM) [" in shown.err
    lines = shown.out.splitlines()
    assert lines[0].startswith("Culver is ready on http://127.0.0.1:8080 (engine spark, ")
    assert lines[3].endswith(' sub "price > 20"')
    assert lines[5].endswith(""" pub '{"symbol": "XYZ", "price": 21.5}'""")
    assert lines[7] == "The HTTP interface is described on http://127.0.0.1:8080/docs. Ctrl-C stops the site."


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ([], []),
        (["--host", "localhost", "--name", "a", "--overlay", "127.0.0.1:7401"], []),
        (["--host", "0.0.0.0"], ["whoever reaches it reads and publishes every event"]),
        (["--host", "culver.example"], ["at culver.example port 8080"]),
        (["--name", "a", "--overlay", ":7401"], ["overlay at :7401 without TLS"]),
    ],
)
def test_what_other_machines_reach_without_protection_is_warned_of(
    started: list[Settings], capsys: pytest.CaptureFixture[str], options: list[str], warned: list[str]
) -> None:
    assert main(["serve", *options]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(warnings) == len(warned)
    for line, text in zip(warnings, warned, strict=True):
        assert line.startswith("culver: warning: other machines may reach this site")
        assert text in line


def test_address_of_sparks_web_interface_is_shown_where_it_is_asked_for(
    started: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--spark-ui"]) == 0
    assert started[0].pipeline.spark_ui is True
    assert capsys.readouterr().out.splitlines()[1] == "Spark's web interface is on http://127.0.0.1:4040"


def test_place_in_an_overlay_is_a_setting_and_is_told(
    started: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--name", "paris", "--overlay", "127.0.0.1:7401", "--routing", "b-drp"]
    assert main(["serve", *arguments, "--peer", "127.0.0.1:7402", "--peer", "[::1]:7403?cost=5"]) == 0
    assert started[0].overlay == OverlaySettings(
        name="paris", listen="127.0.0.1:7401", peers="127.0.0.1:7402 [::1]:7403?cost=5"
    )
    shown = capsys.readouterr().out.splitlines()
    assert shown[1] == "Site paris listens. This shows them:"
    assert shown[2].endswith(" overlay sites --url http://127.0.0.1:8080")


def test_number_of_gateways_is_a_setting_and_is_told(
    started: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--gateways", "3"]) == 0
    assert started[0].gateway.processes == 3
    second = capsys.readouterr().out.splitlines()[1]
    assert second == "3 gateways share its subscriptions: see http://127.0.0.1:8080/v1/gateways"


def test_options_win_over_the_environment_and_that_over_the_file(
    started: list[Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "culver.toml"
    config.write_text('data_dir = "one"\n[gateway]\nport = 1\nhost = "h"\n[pipeline]\nengine = "inline"\n')
    monkeypatch.setenv("CULVER_GATEWAY_PORT", "2")
    monkeypatch.setenv("CULVER_DATA_DIR", "two")
    assert main(["serve", "--config", str(config), "--data-dir", "three"]) == 0
    (settings,) = started
    assert (settings.gateway.host, settings.gateway.port) == ("h", 2)
    assert (settings.data_dir, settings.pipeline.engine) == (Path("three"), "inline")


def test_every_option_reaches_its_setting(started: list[Settings]) -> None:
    arguments = [
        "--engine",
        "inline",
        "--spark-master",
        "local[1]",
        "--host",
        "::1",
        "--port",
        "9",
        "--data-dir",
        "d",
    ]
    assert main(["serve", *arguments]) == 0
    (settings,) = started
    assert (settings.pipeline.engine, settings.pipeline.spark_master) == ("inline", "local[1]")
    assert (settings.gateway.host, settings.gateway.port, settings.data_dir) == ("::1", 9, Path("d"))


def test_what_prevents_the_start_is_told_without_a_traceback(
    started: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--spark-master", "nowhere"]) == 2
    assert "culver: there is no java here;\ninstall Java 17\n" in capsys.readouterr().err


def test_a_wrong_setting_is_named(
    started: list[Settings], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "culver.toml"
    config.write_text("[gateway]\nprot = 1\n")
    assert main(["serve", "--config", str(config)]) == 2
    assert "culver: unknown setting 'gateway.prot'" in capsys.readouterr().err
    assert main(["serve", "--config", str(tmp_path / "none.toml")]) == 2
    assert main(["serve", "--engine", "steam"]) == 2
    assert started == []
