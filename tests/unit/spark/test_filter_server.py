"""The driver serves versions and packages of filters over HTTP."""

import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from culver.errors import Unavailable
from culver.spark.matching.filter_server import FilterAddress, FilterServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FilterServer]:
    (tmp_path / "a").write_bytes(b"package a")
    files = {"a": tmp_path / "a"}
    served = FilterServer(
        "127.0.0.1", "127.0.0.1", 0, lambda query, batch, use: f"{query}-{batch}-{use}", files.get
    )
    yield served
    served.close()


def test_a_worker_asks_for_the_version_of_its_batch_and_fetches_it(
    server: FilterServer, tmp_path: Path
) -> None:
    assert server.address.version("a b&c", 7, 1) == "a b&c-7-1"
    server.address.fetch("a", tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == b"package a"


def test_a_package_that_is_gone_is_refused(server: FilterServer, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no longer serves"):
        server.address.fetch("b", tmp_path / "fetched")


def test_a_connection_that_breaks_is_not_the_end_of_a_package(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\npack")

        thread = threading.Thread(target=answer)
        thread.start()
        address = FilterAddress("127.0.0.1", listener.getsockname()[1], "secret")
        with pytest.raises(Unavailable, match="IncompleteRead"):
            address.fetch("a", tmp_path / "fetched")
        thread.join()


def test_nobody_reads_filters_without_the_secret(server: FilterServer, tmp_path: Path) -> None:
    stranger = server.address._replace(secret="guessed")
    with pytest.raises(Unavailable):
        stranger.version("query", 7, 1)
    connection = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=5)
    connection.request("GET", "/../../etc/passwd")
    assert connection.getresponse().status == 404
    connection.close()


def test_a_server_that_was_closed_is_named(tmp_path: Path) -> None:
    served = FilterServer("127.0.0.1", "127.0.0.1", 0, lambda query, batch, use: "a", lambda version: None)
    served.close()
    with pytest.raises(Unavailable, match=r"does not serve its filters at 127\.0\.0\.1"):
        served.address.version("query", 7, 1)


def test_an_error_of_a_request_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def choose(query: str, batch: int, use: int) -> str:
        raise ValueError("no version")

    served = FilterServer("127.0.0.1", "127.0.0.1", 0, choose, lambda version: None)
    with pytest.raises(Unavailable, match="does not serve its filters"):
        served.address.version("query", 7, 1)
    served.close()
    (record,) = caplog.records
    assert "a request of a worker at ('127.0.0.1'," in record.getMessage()
    assert "no version" in caplog.text
    assert "Exception occurred during processing" not in capsys.readouterr().err


def test_a_package_that_the_driver_has_lost_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = FilterServer("127.0.0.1", "127.0.0.1", 0, lambda query, batch, use: "a", tmp_path.joinpath)
    with pytest.raises(Unavailable, match="does not serve its filters"):
        served.address.fetch("lost", tmp_path / "fetched")
    served.close()
    assert f"No such file or directory: '{tmp_path}/lost'" in caplog.text


def test_a_server_asks_for_no_name_of_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def getfqdn(name: str = "") -> str:
        raise AssertionError("DNS may take long")

    monkeypatch.setattr(socket, "getfqdn", getfqdn)
    FilterServer("127.0.0.1", "127.0.0.1", 0, lambda query, batch, use: "a", lambda version: None).close()
