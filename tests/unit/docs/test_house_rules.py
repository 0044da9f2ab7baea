"""The source tree keeps the rules of the house: unique names, small modules and folders, no fixed waits in tests."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "culver"
PUBLIC_CLASS = re.compile(r"^class ([^_\W]\w*)", re.MULTILINE)
DOCSTRING = re.compile(r'r?"""\S')
NAMELESS = ("__init__", "__main__")

MOST_MODULES_IN_A_FOLDER = 15
MOST_LINES_IN_A_MODULE = 500

# This list may only become shorter.
CROWDED_FOLDERS: set[str] = set()

WAITING = ("tests/unit", "tests/contracts", "tests/integration")


@cache
def texts() -> dict[str, str]:
    """By place in the package. Read once a test asks for them, not by every worker that collects."""
    return {
        str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def test_no_two_modules_share_a_name() -> None:
    places = defaultdict(list)
    for place in texts():
        if Path(place).stem not in NAMELESS:
            places[Path(place).stem].append(place)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_two_public_classes_share_a_name() -> None:
    places = defaultdict(list)
    for place, text in texts().items():
        for name in PUBLIC_CLASS.findall(text):
            places[name].append(place)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_folder_has_many_modules() -> None:
    modules = defaultdict(list)
    for place in map(Path, texts()):
        if place.stem not in NAMELESS:
            modules[str(place.parent)].append(place.stem)
    crowded = {folder: names for folder, names in modules.items() if len(names) > MOST_MODULES_IN_A_FOLDER}
    assert {folder: names for folder, names in crowded.items() if folder not in CROWDED_FOLDERS} == {}


def test_no_module_is_long() -> None:
    lengths = {place: len(text.splitlines()) for place, text in texts().items()}
    assert {place: lines for place, lines in lengths.items() if lines > MOST_LINES_IN_A_MODULE} == {}


def test_every_module_and_package_has_a_docstring() -> None:
    assert [place for place, text in texts().items() if not DOCSTRING.match(text)] == []


def test_no_unit_or_integration_test_waits_for_a_fixed_time() -> None:
    """`support.until` waits for a condition; `sleep(0)` is a turn of the event loop."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in WAITING
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in _sleeps(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def _sleeps(text: str) -> Iterator[int]:
    if "sleep" not in text:  # most of them, and parsing takes its time
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("asyncio.sleep", "time.sleep", "sleep"):
            turn = isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            if not turn:
                yield node.lineno
