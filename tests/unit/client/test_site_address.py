import pytest

from culver.client.site_address import DEFAULT_URL, default_url, parse_address
from culver.errors import InvalidRequest


@pytest.mark.parametrize(
    ("url", "http", "web_socket", "loopback"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080", "ws://127.0.0.1:8080/v1/ws", True),
        ("http://localhost:9000/", "http://localhost:9000", "ws://localhost:9000/v1/ws", True),
        ("http://[::1]:80", "http://[::1]:80", "ws://[::1]:80/v1/ws", True),
        ("https://host.example/a/b/", "https://host.example/a/b", "wss://host.example/a/b/v1/ws", False),
        ("wss://host.example", "https://host.example", "wss://host.example/v1/ws", False),
        ("ws://10.0.0.7:81", "http://10.0.0.7:81", "ws://10.0.0.7:81/v1/ws", False),
    ],
)
def test_an_address_has_an_http_and_a_web_socket_form(
    url: str, http: str, web_socket: str, loopback: bool
) -> None:
    address = parse_address(url)
    assert (address.http, address.web_socket, address.loopback) == (http, web_socket, loopback)


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "ftp://host", "http://", "http://host:99999", "http://h/?a=1", "http://h:0"]
)
def test_anything_else_is_refused_by_name(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_address(url)
    assert caught.value.field == "url"


def test_the_default_comes_from_the_environment() -> None:
    assert default_url({}) == DEFAULT_URL
    assert default_url({"CULVER_URL": ""}) == DEFAULT_URL
    assert default_url({"CULVER_URL": "http://other:1"}) == "http://other:1"
