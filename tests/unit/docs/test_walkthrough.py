"""The walkthrough names modules and functions that exist, and its steps call downwards."""

import importlib
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[3]

_ROW = re.compile(r"^\| (\d+) \| `([^`]+)\.py` \| `([^`]+)` \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
_PROTOCOL = re.compile(r"through `([^`]+)` in `([^`]+)\.py`")


class Step(NamedTuple):
    number: int
    module: str
    function: str
    called_by: str

    @property
    def callers(self) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", self.called_by.partition("through")[0])]


def _walks() -> dict[str, list[Step]]:
    page = (ROOT / "docs" / "walkthrough.md").read_text(encoding="utf-8")
    titles_and_texts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)[1:]
    return {
        title: [Step(int(found[1]), _dotted(found[2]), found[3], found[4]) for found in _ROW.finditer(text)]
        for title, text in zip(titles_and_texts[::2], titles_and_texts[1::2], strict=True)
    }


def _dotted(path: str) -> str:
    return "culver." + path.replace("/", ".")


def _named(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _layer(module: str) -> int:
    """The place of a module's package among the layers; 0 is the highest."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(each["layers"] for each in contracts["contracts"] if each["type"] == "layers")
    package = ".".join(module.split(".")[:2])
    return next(place for place, layer in enumerate(layers) if package in layer.split(" | "))


WALKS = _walks()
STEPS = [
    pytest.param(walk, step, id=f"{title} {step.number}") for title, walk in WALKS.items() for step in walk
]


def test_all_walks_are_read_whole() -> None:
    assert [[step.number for step in walk] for walk in WALKS.values()] == [
        list(range(1, 36)),
        list(range(1, 15)),
        list(range(1, 14)),
        list(range(1, 10)),
        list(range(1, 15)),
        list(range(1, 10)),
    ]


@pytest.mark.parametrize(("walk", "step"), STEPS)
def test_a_step_names_a_function_that_exists(walk: list[Step], step: Step) -> None:
    assert callable(_named(step.module, step.function))


@pytest.mark.parametrize(("walk", "step"), STEPS)
def test_a_step_is_called_from_above_or_through_a_protocol_of_the_caller(
    walk: list[Step], step: Step
) -> None:
    by_number = {each.number: each for each in walk}
    protocol = _PROTOCOL.search(step.called_by)
    for caller in (by_number[number] for number in step.callers):
        if protocol is None:
            assert _layer(caller.module) <= _layer(step.module)
        else:
            owner = _dotted(protocol[2])
            method = step.function.rpartition(".")[2]
            assert getattr(_named(owner, protocol[1]), "_is_protocol", False)
            assert callable(_named(owner, f"{protocol[1]}.{method}"))
            assert _layer(caller.module) <= _layer(owner)
