"""The command line of a Spark process, against what Spark's own launcher says."""

import os
import subprocess
from pathlib import Path

import pytest

from culver.config import load
from culver.errors import InvalidConfiguration, Unavailable
from culver.pipeline.spark import java
from culver.pipeline.spark.class_archive import archive_options, archive_path
from culver.pipeline.spark.session_settings import session_settings


def test_options_for_java_are_those_of_sparks_launcher() -> None:
    home = java.spark_home()
    command = [str(java.find_java()), "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main"]
    said = subprocess.run(
        [*command, "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"],
        env={**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        check=True,
    )
    words = said.stdout.decode().replace("\n", "\0").split("\0")
    options = [
        word for word in words if word.startswith(("--add-opens", "--enable", "--sun-", "-Dio.", "-XX"))
    ]
    assert list(java.MODULE_OPTIONS) == options


RECORDER = """#!/bin/sh
# Stands for java: records its arguments, and the files that they name.
printf '%s\\n' "$@" > "$RECORD/arguments"
for word in "$@"; do
  case "$word" in
    @*) cp "${word#@}" "$RECORD/options";;
    */properties) cp "$word" "$RECORD";;
  esac
done
"""


def test_settings_never_show_in_the_arguments_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(RECORDER)
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("RECORD", str(tmp_path))
    extra = {
        "spark.ssl.keyPassword": "sword=fish # 1",
        "spark.driver.extraJavaOptions": '-Dkey="open sesame"',
    }
    machine = java.VirtualMachine(session_settings("local[1]", tmp_path, extra))
    with pytest.raises(Unavailable, match="ended with code 0 before Spark started"):
        machine.connect()
    machine.close()
    arguments = (tmp_path / "arguments").read_text()
    assert "SparkSubmit" in arguments
    assert "sword" not in arguments
    assert "sesame" not in arguments
    properties = (tmp_path / "properties").read_text()
    assert "spark.ssl.keyPassword=sword\\u003dfish\\u0020\\u0023\\u00201\n" in properties
    assert '"-Dkey=open sesame"\n' in (tmp_path / "options").read_text()
    directory = Path(next(word for word in arguments.split() if word.endswith("/properties"))).parent
    assert not directory.exists()


def test_settings_of_spark_do_not_show_in_a_text_of_all_settings() -> None:
    settings = load(environment={"CULVER_PIPELINE_SPARK_CONF": "spark.ssl.keyPassword=swordfish"})
    assert settings.pipeline.spark_conf == {"spark.ssl.keyPassword": "swordfish"}
    assert "swordfish" not in repr(settings)


def test_without_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InvalidConfiguration, match="apt-get install"):
        java.find_java()
    assert archive_options() == []


def test_archive_is_used_only_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = archive_path()
    assert path is not None
    assert path.is_relative_to(tmp_path)
    assert archive_options() == []
    path.parent.mkdir(parents=True)
    path.touch()
    assert f"-XX:SharedArchiveFile={path}" in archive_options()


def test_configuration_directory_goes_first_and_allows_no_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert java.class_path()[0] == str(tmp_path)
    assert archive_path() is None
    assert archive_options() == []
