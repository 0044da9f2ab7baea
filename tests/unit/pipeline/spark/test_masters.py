"""Addresses of Spark masters: what is understood, and what is said of one that does not answer."""

import socket

import pytest

from culver.errors import InvalidConfiguration
from culver.pipeline.spark.session_settings import check_master, trouble_with


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
