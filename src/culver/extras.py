"""The extras of the package: what each of them is called, and which packages it brings.

`pip install culver` is the client alone. Whatever needs more says so:

    culver serve needs the server: pip install 'culver[server]'
"""

import importlib.util
from typing import NamedTuple

from culver.errors import MissingExtra


class Extra(NamedTuple):
    """An extra: its name for people, and the packages that Culver imports from it. pyproject.toml has their
    versions."""

    title: str
    packages: tuple[str, ...]


_MATCHER = ("lark", "numba", "numpy", "pyarrow")
_SERVER = (
    *_MATCHER,
    "hiredis",
    "httptools",
    "prometheus_client",
    "starlette",
    "uvicorn",
    "uvloop",
)

EXTRAS = {
    "arrow": Extra("Arrow", ("pyarrow",)),
    "channels": Extra("the client of the channels", ("hiredis",)),
    "matcher": Extra("the matcher", _MATCHER),
    "server": Extra("the server", _SERVER),
    "spark": Extra("Spark", (*_SERVER, "pyspark")),
    "bench": Extra("the benchmarks", (*_SERVER, "pyspark", "duckdb", "matplotlib", "polars", "psutil")),
}


def require(extra: str, user: str, otherwise: str = "") -> None:
    """Check that the packages of an extra are installed, without importing them. `user` is the command or function
    that needs it and begins the message; `otherwise` ends it with what works without.

    :raises MissingExtra: a package is not installed.
    """
    title, packages = EXTRAS[extra]
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        message = f"{user} needs {title}: pip install 'culver[{extra}]'{otherwise}"
        raise MissingExtra(message, extra=extra, missing_packages=missing)
