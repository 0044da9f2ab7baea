"""The command line of a Spark process, against what Spark's own launcher says."""

import os
import subprocess
from pathlib import Path

import pytest

from culver.errors import InvalidConfiguration
from culver.pipeline.spark import java
from culver.pipeline.spark.class_archive import archive_options, archive_path


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
