from typing import Any

import pytest

from culver.errors import InvalidConfiguration
from culver.overlay import LinkSettings
from culver.overlay.links.link_settings import parse_listen, parse_peer


def test_addresses_have_a_label_and_a_cost() -> None:
    assert parse_peer("paris.example:7400")[1:] == ("paris.example", 7400, "", 1)
    assert parse_peer("paris.example:7400?label=fibre&cost=20")[1:] == ("paris.example", 7400, "fibre", 20)
    assert parse_peer("[::1]:7400?cost=3")[1:] == ("::1", 7400, "", 3)
    assert parse_listen("0.0.0.0:0") == ("0.0.0.0", 0)
    assert parse_listen(":7400") == ("", 7400)
    assert parse_listen("[::]:7400") == ("::", 7400)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("listen", "localhost"), ("listen", "localhost:port"), ("listen", "localhost:70000"),
        ("listen", "a:1?label=x"), ("listen", "user@a:1"), ("listen", "a:1/path"),
        ("peers", ("localhost",)), ("peers", (":7400",)), ("peers", ("a:0",)), ("peers", ("a:1/b",)),
        ("peers", ("a:1?speed=3",)), ("peers", ("a:1?cost=0",)), ("peers", ("a:1?cost=-1",)),
        ("peers", ("a:1?cost=x",)), ("peers", ("a:1?cost=1000001",)), ("peers", ("a:1?label=x%20y",)),
        ("peers", ("a:1", "a:1?cost=2")), ("peers", ("[::1:7400",)),
        ("allowed", ("par is",)), ("tls_ca", "ca.pem"), ("dead_seconds", 1.5), ("hello_seconds", 0.0),
        ("max_frame_bytes", 100), ("queue_bytes", 1_000_000),
    ],
)  # fmt: skip
def test_impossible_settings_are_named(setting: str, value: Any) -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        LinkSettings(**{setting: value})
    assert raised.value.field == f"overlay.{setting}"
