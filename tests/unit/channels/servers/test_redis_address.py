"""URLs of servers: three forms, one spelling, and no password in what is shown."""

import pytest

from culver.channels.servers.redis_address import RedisAddress, ServerAccess, parse_redis_url
from culver.errors import InvalidConfiguration


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://h", RedisAddress("redis://h:6379", "h", 6379, "", tls=False)),
        ("redis://H:7000/", RedisAddress("redis://h:7000", "h", 7000, "", tls=False)),
        ("redis://127.0.0.1:1/0", RedisAddress("redis://127.0.0.1:1", "127.0.0.1", 1, "", tls=False)),
        ("redis://[::1]:7", RedisAddress("redis://[::1]:7", "::1", 7, "", tls=False)),
        ("rediss://h:7", RedisAddress("rediss://h:7", "h", 7, "", tls=True)),
        ("redis://:s%40me@h", RedisAddress("redis://h:6379", "h", 6379, "", False, None, "s@me")),
        ("redis://u:p:q@h", RedisAddress("redis://h:6379", "h", 6379, "", False, "u", "p:q")),
        ("unix:///run/redis.sock", RedisAddress("unix:///run/redis.sock", "", 0, "/run/redis.sock", False)),
        ("unix://u:p@/a%20b", RedisAddress("unix:///a%20b", "", 0, "/a b", False, "u", "p")),
    ],
)
def test_url_is_read(url: str, address: RedisAddress) -> None:
    assert parse_redis_url(url) == address


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "write redis://host:port"),
        ("h:6379", "write redis://host:port"),
        ("http://h", "write redis://host:port"),
        ("redis://", "write redis://host:port"),
        ("redis://h:0", "write redis://host:port"),
        ("redis://h:99999", "cannot be read"),
        ("redis://h:port", "cannot be read"),
        ("redis://[::1", "cannot be read"),
        ("redis://h/1", "database 0"),
        ("redis://h?db=1", "no parameters"),
        ("unix://host/path", "names no socket"),
        ("unix://", "names no socket"),
    ],
)
def test_wrong_url_is_refused_with_the_right_form(url: str, says: str) -> None:
    with pytest.raises(InvalidConfiguration, match=says) as caught:
        parse_redis_url(url)
    assert caught.value.field == "url"


@pytest.mark.parametrize(
    "url", ["http://u:hidden@h", "redis://:hidden@h/7", "redis://:hidden@h?a=b", "unix://:hidden@h/path"]
)
def test_refusal_does_not_repeat_the_password(url: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        parse_redis_url(url)
    assert "hidden" not in str(caught.value)


def test_password_is_not_shown() -> None:
    assert "hidden" not in repr(parse_redis_url("redis://u:hidden@h"))
    assert "hidden" not in repr(ServerAccess("u", "hidden"))
