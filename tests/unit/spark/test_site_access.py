"""When a site is asked again."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from culver.client import SyncClient
from culver.errors import ConnectionFailed, RequestRefused, Unavailable
from culver.spark.site_access import SiteAccess, close_clients
from support.fake_site import FakeSite
from support.gateway import gateway_settings
from support.site_thread import site_in_thread

URL = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def clients_are_closed() -> Iterator[None]:
    yield
    close_clients()


class Question:
    """Fails once; the second answer is 7."""

    def __init__(self, failure: Exception) -> None:
        self._failure = failure
        self.asked = 0

    def __call__(self, client: SyncClient) -> int:
        self.asked += 1
        if self.asked == 1:
            raise self._failure
        return 7


@pytest.mark.parametrize(
    "failure",
    [
        ConnectionFailed("connection refused"),
        ConnectionFailed("a proxy answered", status=429),
        ConnectionFailed("a proxy answered", status=502),
        RequestRefused("too fast", status=429, retryable=True),
        RequestRefused("stopping", status=503, retryable=True),
        RequestRefused("the disk is full", status=507, retryable=True),
    ],
)
def test_site_is_asked_again_where_that_can_help(failure: Exception) -> None:
    assert SiteAccess(URL, 60).ask(Question(failure)) == 7


@pytest.mark.parametrize(
    "failure",
    [
        *(
            ConnectionFailed("a proxy answered", status=status)
            for status in (200, 400, 401, 403, 404, 413, 501)
        ),
        *(RequestRefused("no", status=status, retryable=False) for status in (400, 403, 404, 413, 500)),
    ],
)
def test_site_is_asked_once_where_its_answer_will_not_change(failure: Exception) -> None:
    question = Question(failure)
    with pytest.raises(type(failure)):
        SiteAccess(URL, 60).ask(question)
    assert question.asked == 1


def test_site_is_asked_once_where_nobody_waits() -> None:
    question = Question(ConnectionFailed("connection refused"))
    with pytest.raises(ConnectionFailed):
        SiteAccess(URL, 0).ask(question)
    assert question.asked == 1


def test_publication_fails_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    site = FakeSite(gateway_settings())
    site.failures["publish"] = Unavailable("stopping")
    asked: list[str] = []

    def fail(method: str) -> None:
        asked.append(method)
        FakeSite.fail(site, method)

    monkeypatch.setattr(site, "fail", fail)
    with site_in_thread(site) as url, pytest.raises(RequestRefused, match="stopping"):
        SiteAccess(url, 0).ask(lambda client: client.publish_encoded_once([b"{}"], publisher="p", sequence=0))
    assert asked == ["publish"]


class OtherProgram(BaseHTTPRequestHandler):
    """Answers every request with an empty JSON object."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


def test_answer_of_another_program_is_final() -> None:
    with HTTPServer(("127.0.0.1", 0), OtherProgram) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            with pytest.raises(ConnectionFailed, match="not a LogRange"):
                SiteAccess(f"http://127.0.0.1:{server.server_port}", 60).ask(lambda client: client.log())
        finally:
            close_clients()
            server.shutdown()
            thread.join()
