"""The key by which sites know one another: the site's name, and a part of its data directory's identity.

    paris~0123456789abcdef

People configure names, and a certificate carries one. The identity tells a site that was set up anew under the same
name from its predecessor: what others remember of the old data directory does not hold for the new one.
"""

import re

from culver.errors import InvalidConfiguration

#: The name of a site; match it as a whole (``fullmatch``).
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_IDENTITY_BYTES = 8
_KEY = re.compile(rf"({NAME.pattern})~[0-9a-f]{{{2 * _IDENTITY_BYTES}}}")


def site_key(name: str, identity: bytes) -> str:
    """Joins the name and the first 8 bytes of the data directory's identity.

    :raises InvalidConfiguration: the name has another form than ``NAME``.
    """
    if NAME.fullmatch(name) is None:
        raise InvalidConfiguration(
            f"{name!r} cannot be the name of a site: use 1 to 64 letters, digits, '.', '_' and '-', "
            "and begin with a letter or digit",
            field="overlay.name",
        )
    if len(identity) < _IDENTITY_BYTES:
        raise ValueError(f"an identity has at least {_IDENTITY_BYTES} bytes")
    return f"{name}~{identity[:_IDENTITY_BYTES].hex()}"


def name_of(key: str) -> str:
    """:raises ValueError: this is not the key of a site."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"{key!r} is not the key of a site")
    return found[1]


def is_site_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None
