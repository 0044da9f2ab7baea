"""The documentation's links lead somewhere, and what it shows as code is code."""

import ast
import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from culver.cli.root import culver
from culver.config import FilterSettings
from culver.model.language.parser import parse

ROOT = Path(__file__).parents[3]
PAGES = sorted(path for pattern in ("*.md", "docs/**/*.md", "clients/*/*.md") for path in ROOT.glob(pattern))

_FENCE = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_MODULE_PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.py)`")
_LINK = re.compile(r"!?\[[^\]\[]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block: its page, the line of its first row, the words behind the fence, its text."""

    page: Path
    line: int
    words: tuple[str, ...]
    text: str


def _blocks(language: str) -> Iterator[Block]:
    for page in PAGES:
        source = page.read_text(encoding="utf-8")
        for found in _FENCE.finditer(source):
            words = tuple(found[2].split())
            if words[:1] == (language,):
                yield Block(page, source.count("\n", 0, found.start()) + 2, words, found[3])


def _place(block: Block) -> str:
    return f"{block.page.relative_to(ROOT)}:{block.line}"


PYTHON = list(_blocks("python"))
RUNNABLE = [block for block in PYTHON if "runnable" in block.words]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_page_and_a_heading_that_exist(page: Path) -> None:
    broken = []
    for target in _LINK.findall(_without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        path, _, heading = target.partition("#")
        destination = (page.parent / path).resolve() if path else page
        found = destination.exists() and ROOT in [destination, *destination.parents]
        if not found or (heading and heading not in _headings(destination)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_a_page_names_exist(page: Path) -> None:
    named = _MODULE_PATH.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    places = (ROOT, ROOT / "src" / "culver", ROOT / "tests")
    assert [path for path in named if not any((place / path).is_file() for place in places)] == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"]
    assert [name for name in pages if f"({name})" not in index] == []


def test_decisions_are_numbered_without_repetition_and_have_their_parts() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [page.name[:4] for page in pages]
    assert all(re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", page.name) for page in pages)
    assert len(set(numbers)) == len(numbers)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {int(page.name[:4])}. "), page.name
        for part in ("Context", "Decision", "Consequences", "Alternatives"):
            assert re.search(rf"^## {part}", text, re.MULTILINE), f"{page.name} has no part {part}"


@pytest.mark.parametrize("block", PYTHON, ids=_place)
def test_python_examples_are_python(block: Block) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    compile(block.text, _place(block), "exec", flags=flags, dont_inherit=True)


@pytest.mark.parametrize("block", RUNNABLE, ids=_place)
def test_runnable_examples_run(block: Block) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.text], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", list(_blocks("sh")), ids=_place)
def test_commands_and_their_options_exist(block: Block) -> None:
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words or Path(words[0]).name != "culver":
            continue
        words = list(itertools.takewhile(lambda word: word not in ("|", ">", "<", "&", "&&", ";"), words[1:]))
        command: click.Command | None = culver
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            name = words.pop(0)
            command = command.get_command(click.Context(command), name)
            assert command is not None, f"{line}: there is no command {name}"
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts} | {
            "--help",
            "--version",
        }
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= known, line


def test_filters_on_the_front_page_are_filters() -> None:
    shown = [
        line
        for block in _blocks("sql")
        if block.page == ROOT / "README.md"
        for line in block.text.splitlines()
    ]
    assert shown
    for line in shown:
        assert parse(line, FilterSettings()).clauses


def test_there_are_runnable_examples() -> None:
    assert RUNNABLE


def test_a_broken_link_would_be_noticed() -> None:
    text = "see [a](there.md#part), `[not](a-link)` and\n```\n[nor](this)\n```\n"
    assert _LINK.findall(_without_code(text)) == ["there.md#part"]


def _without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))


def _headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as hosting sites make them."""
    anchors: set[str] = set()
    for title in re.findall(r"^#{1,6} (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        count = sum(
            anchor == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", anchor) is not None
            for anchor in anchors
        )
        anchors.add(f"{slug}-{count}" if count else slug)
    return anchors
