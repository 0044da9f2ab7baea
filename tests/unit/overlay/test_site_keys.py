import pytest

from culver.errors import InvalidConfiguration
from culver.overlay import is_site_key, name_of, site_key


def test_a_key_is_the_name_and_the_first_eight_bytes_of_the_identity() -> None:
    key = site_key("paris", bytes.fromhex("0123456789abcdef") + b"more")
    assert key == "paris~0123456789abcdef"
    assert name_of(key) == "paris"
    assert is_site_key(key)


@pytest.mark.parametrize("name", ["", ".paris", "-paris", "par is", "paris~1", "pärís", "a" * 65, "paris\n"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidConfiguration):
        site_key(name, bytes(8))


def test_a_short_identity_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        site_key("paris", bytes(7))


@pytest.mark.parametrize(
    "text",
    [
        "", "paris", "paris~", "~0123456789abcdef", "paris~0123456789ABCDEF", "paris~0123456789abcde",
        "paris~0123456789abcdef0", "paris~0123456789abcdef\n", " paris~0123456789abcdef", "a~b~0123456789abcdef",
    ],
)  # fmt: skip
def test_only_the_exact_form_is_a_key(text: str) -> None:
    assert not is_site_key(text)
    with pytest.raises(ValueError, match="not the key"):
        name_of(text)
