"""Settings: every source, their order, and what is refused."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from culver.config import CHOICES, MEASURED_CLUSTERS, Settings, known_settings, load
from culver.errors import InvalidConfiguration
from culver.plugins import FORWARDINGS, PLACEMENTS


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "culver.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(
    path: Path | None = None, environment: dict[str, str] | None = None, flags: dict[str, Any] | None = None
) -> InvalidConfiguration:
    with pytest.raises(InvalidConfiguration) as caught:
        load(path, environment or {}, flags)
    return caught.value


def test_without_sources_the_defaults_hold() -> None:
    assert load(environment={}) == Settings()


def test_each_source_overrides_the_one_before_it(tmp_path: Path) -> None:
    path = write(tmp_path, "[gateway]\nport = 1\nhost = 'file'\nmax_connections = 7\n")
    environment = {"CULVER_GATEWAY_PORT": "2", "CULVER_GATEWAY_HOST": "environment"}
    settings = load(path, environment, {"gateway.port": 3})
    assert settings.gateway.port == 3
    assert settings.gateway.host == "environment"
    assert settings.gateway.max_connections == 7
    assert settings.gateway.max_body_bytes == Settings().gateway.max_body_bytes


def test_a_flag_that_is_not_given_overrides_nothing() -> None:
    assert load(environment={"CULVER_GATEWAY_PORT": "2"}, flags={"gateway.port": None}).gateway.port == 2


def test_sections_do_not_touch_one_another() -> None:
    settings = load(environment={"CULVER_EVENTS_MAX_BATCH": "5"})
    assert settings.events.max_batch == 5
    assert settings.registry == Settings().registry


def test_the_processs_own_environment_is_used_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CULVER_DELIVERY_LIVE_BUFFER", "12")
    assert load().delivery.live_buffer == 12


def test_the_data_directory_is_a_path_from_every_source(tmp_path: Path) -> None:
    path = write(tmp_path, 'data_dir = "from-file"\n')
    assert load(path, {}).data_dir == Path("from-file")
    assert load(path, {"CULVER_DATA_DIR": "from-environment"}).data_dir == Path("from-environment")
    assert load(path, {}, {"data_dir": Path("from-flag")}).data_dir == Path("from-flag")


@pytest.mark.parametrize(
    "name",
    sorted(
        known_settings().keys()
        - {"pipeline.spark_conf", "pipeline.spark_ui", "pipeline.elastic", "overlay.rescue"}
    ),
)
def test_every_setting_can_be_set_in_the_environment(name: str) -> None:
    variable = "CULVER_" + name.replace(".", "_").upper()
    text = CHOICES.get(name, ("3",))[-1]
    settings: Any = load(environment={variable: text})
    for part in name.split("."):
        settings = getattr(settings, part)
    assert settings == known_settings()[name](text)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("False", False), ("0", False)])
def test_switch_is_set_in_the_environment(text: str, value: bool) -> None:
    assert load(environment={"CULVER_PIPELINE_SPARK_UI": text}).pipeline.spark_ui is value
    assert load(environment={"CULVER_PIPELINE_ELASTIC": text}).pipeline.elastic is value
    assert load(environment={"CULVER_OVERLAY_RESCUE": text}).overlay.rescue is value


def test_switch_is_nothing_but_true_or_false() -> None:
    with pytest.raises(InvalidConfiguration, match="must be true or false, not 'maybe'"):
        load(environment={"CULVER_PIPELINE_SPARK_UI": "maybe"})


def test_no_two_settings_share_a_variable() -> None:
    variables = [name.replace(".", "_") for name in known_settings()]
    assert len(variables) == len(set(variables))


def test_every_field_of_every_section_is_known() -> None:
    count = sum(
        len(fields(getattr(Settings(), section.name))) if section.name != "data_dir" else 1
        for section in fields(Settings)
    )
    assert len(known_settings()) == count


def test_other_variables_are_left_alone() -> None:
    assert load(environment={"CULVER_URL": "http://x", "PATH": "/bin"}) == Settings()


@pytest.mark.parametrize(
    "text", ["[gateway]\nprot = 1\n", "[gatway]\nport = 1\n", "port = 1\n", "gateway = 5\n"]
)
def test_an_unknown_name_in_the_file_lists_the_known_ones(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    error = refusal(path)
    assert error.field in ("gateway.prot", "gatway.port", "port", "gateway")
    assert "gateway.port" in error.message
    assert str(path) in error.message


def test_an_unknown_flag_lists_the_known_ones() -> None:
    error = refusal(flags={"gateway.prot": 1})
    assert error.field == "gateway.prot"
    assert "gateway.port" in error.message


@pytest.mark.parametrize(
    ("text", "field", "wanted"),
    [
        ('[gateway]\nport = "many"\n', "gateway.port", "a whole number"),
        ("[gateway]\nport = 1.5\n", "gateway.port", "a whole number"),
        ("[gateway]\nport = true\n", "gateway.port", "a whole number"),
        ("[gateway]\nport = [1]\n", "gateway.port", "a whole number"),
        ("[gateway]\nhost = 5\n", "gateway.host", "text"),
        ('[gateway]\npoll_seconds = "soon"\n', "gateway.poll_seconds", "a number"),
        ("data_dir = 5\n", "data_dir", "text"),
    ],
)
def test_a_wrong_type_says_what_was_wanted(tmp_path: Path, text: str, field: str, wanted: str) -> None:
    error = refusal(write(tmp_path, text))
    assert error.field == field
    assert wanted in error.message


@pytest.mark.parametrize("value", ["-1", str(2**62), "-0.5"])
def test_numbers_that_make_no_sense_are_refused_with_their_source(value: str) -> None:
    error = refusal(environment={"CULVER_EVENTS_MAX_BYTES": value})
    assert error.field == "events.max_bytes"
    assert "CULVER_EVENTS_MAX_BYTES" in error.message


@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_a_duration_must_be_a_finite_number(value: str) -> None:
    assert refusal(environment={"CULVER_GATEWAY_POLL_SECONDS": value}).field == "gateway.poll_seconds"


def test_a_whole_number_is_a_number_too(tmp_path: Path) -> None:
    assert load(write(tmp_path, "[gateway]\npoll_seconds = 5\n"), {}).gateway.poll_seconds == 5.0


def test_a_file_that_is_not_there_or_not_toml_is_refused_with_its_name(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert str(missing) in refusal(missing).message
    broken = write(tmp_path, "[gateway\n")
    assert str(broken) in refusal(broken).message
    broken.write_bytes(b"\xff\xfe")
    assert "TOML" in refusal(broken).message


def test_settings_cannot_be_changed_afterwards() -> None:
    gateway: Any = load(environment={}).gateway
    with pytest.raises(AttributeError):
        gateway.port = 5


def test_misspelt_variable_is_refused_with_the_name_that_was_meant() -> None:
    with pytest.raises(InvalidConfiguration, match="CULVER_GATEWAY_PORT") as caught:
        load(environment={"CULVER_GATEWAY_PROT": "1"})
    assert caught.value.field == "CULVER_GATEWAY_PROT"


def test_variables_of_the_client_and_the_command_line_are_no_settings() -> None:
    load(
        environment={
            "CULVER_URL": "http://x",
            "CULVER_DEBUG": "1",
            "CULVER_LOG_LEVEL": "info",
            "CULVERT": "x",
        }
    )


def test_settings_of_spark_from_all_sources_are_laid_over_one_another(tmp_path: Path) -> None:
    path = write(tmp_path, '[pipeline.spark_conf]\n"spark.a" = 1\n"spark.b" = true\n"spark.c" = "file"\n')
    environment = {"CULVER_PIPELINE_SPARK_CONF": "spark.c=environment 'spark.d=two words'"}
    settings = load(path, environment, {"pipeline.spark_conf": {"spark.e": "flag"}})
    assert settings.pipeline.spark_conf == {
        "spark.a": "1",
        "spark.b": "true",
        "spark.c": "environment",
        "spark.d": "two words",
        "spark.e": "flag",
    }


@pytest.mark.parametrize("text", ["spark.a", "=1", "spark.a=1 b"])
def test_settings_of_spark_that_are_no_pairs_are_refused(text: str) -> None:
    assert refusal(environment={"CULVER_PIPELINE_SPARK_CONF": text}).field == "pipeline.spark_conf"


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("pipeline.engine", "flink", "must be one of spark, inline, not 'flink'"),
        ("pipeline.placement", "x", "must be one of auto, replicated, hashed"),
        ("pipeline.forwarding", "x", "must be one of adaptive, response-time"),
        ("pipeline.cuts", "x", "must be one of quantiles, equal, not 'x'"),
        ("pipeline.slices", 257, "must be from 0 to 256, it is 257"),
        ("pipeline.slices_min", 0, "must be from 1 to 256, it is 0"),
        ("pipeline.slices_max", 1_000, "must be from 1 to 256, it is 1000"),
        ("pipeline.dimensions", 0, "must be from 1 to 16, it is 0"),
        ("delivery.mailbox_age_seconds", 0, "must be from 1 to"),
        ("overlay.clusters", -1, "must be from 0 to 4095, it is -1"),
        ("overlay.clusters", "many", "must be a whole number or measured, not 'many'"),
    ],
)
def test_a_value_that_a_setting_cannot_have_is_refused_with_those_it_can(
    tmp_path: Path, name: str, value: str | int, wanted: str
) -> None:
    section, key = name.split(".")
    path = tmp_path / "culver.toml"
    path.write_text(f"[{section}]\n{key} = {json.dumps(value)}\n")
    variable = f"CULVER_{section}_{key}".upper()
    for source, file, environment in ((str(path), path, {}), (variable, None, {variable: str(value)})):
        with pytest.raises(InvalidConfiguration, match=f"^{name} from {source} {wanted}") as refused:
            load(file, environment)
        assert refused.value.field == name


@pytest.mark.parametrize(("value", "clusters"), [(3, 3), ("measured", MEASURED_CLUSTERS)])
def test_a_word_may_stand_for_the_number_of_clusters(tmp_path: Path, value: int | str, clusters: int) -> None:
    path = write(tmp_path, f"[overlay]\nclusters = {json.dumps(value)}\n")
    assert load(path, {}).overlay.clusters == clusters
    assert load(None, {"CULVER_OVERLAY_CLUSTERS": str(value)}).overlay.clusters == clusters


def test_every_name_that_can_be_chosen_is_known() -> None:
    assert set(CHOICES["pipeline.placement"]) == {"auto", *PLACEMENTS}
    assert set(CHOICES["pipeline.forwarding"]) == set(FORWARDINGS)
