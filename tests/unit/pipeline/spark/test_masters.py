"""Addresses of Spark masters: what is understood, and what is said of one that does not answer."""

import socket
from pathlib import Path

import pytest

from culver.errors import InvalidConfiguration
from culver.pipeline.spark.session_settings import (
    address_towards,
    check_master,
    session_settings,
    trouble_with,
)


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[*]",
        "local[2,4]",
        "local-cluster[2,1,1024]",
        "yarn",
        "k8s://https://host:6443",
        "spark://head:7077",
        "spark://one:7077,two:7077",
    ],
)
def test_address_that_spark_understands_is_accepted(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize(
    "master", ["", "head:7077", "spark://head", "sparks://head:1", "local[", "mesos://x:1"]
)
def test_address_that_no_spark_understands_is_refused_with_its_text(master: str) -> None:
    with pytest.raises(InvalidConfiguration, match="spark://HOST:PORT") as caught:
        check_master(master)
    assert repr(master) in str(caught.value)


def test_master_is_reached_if_one_of_its_addresses_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert trouble_with(f"spark://127.0.0.1:1,127.0.0.1:{port}") is None
    trouble = trouble_with(f"spark://127.0.0.1:{port}")
    assert trouble is not None
    assert f"spark://127.0.0.1:{port}" in trouble
    assert "refused" in trouble


def test_driver_has_the_address_from_which_this_machine_reaches_the_master() -> None:
    assert address_towards("spark://127.0.0.2:7077") == "127.0.0.1"
    assert address_towards("spark://nobody.invalid:7077,127.0.0.2:7077") == "127.0.0.1"
    for master in ("spark://nobody.invalid:7077", "local[2]", "yarn"):
        assert address_towards(master) is None


@pytest.mark.parametrize("master", ["local[2]", "spark://127.0.0.1:7077", "spark://127.0.0.2:7077"])
def test_driver_of_a_master_on_this_machine_listens_on_the_loopback_address_only(master: str) -> None:
    settings = session_settings(master, Path("work"), {})
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"


def test_address_of_the_driver_that_is_given_wins() -> None:
    settings = session_settings(
        "spark://nobody.invalid:7077", Path("work"), {"spark.driver.host": "10.0.0.5"}
    )
    assert settings["spark.driver.host"] == "10.0.0.5"
