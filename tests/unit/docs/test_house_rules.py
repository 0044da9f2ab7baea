"""The source tree keeps the rules of the house: names that are unique, modules and folders that are small."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "culver"
MODULES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted({module.parent for module in MODULES})
NAMELESS = ("__init__", "__main__")

MOST_MODULES_IN_A_FOLDER = 15
MOST_LINES_IN_A_MODULE = 500

# Both lists may only become shorter.
CROWDED_FOLDERS = {"pipeline"}
SHARED_CLASS_NAMES = {
    "Member",
    "Memory",
    "Meter",
    "Part",
    "Plan",
    "Range",
    "Ranges",
    "SliceView",
    "Source",
}


def _place(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def _public_classes(module: Path) -> Iterator[str]:
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def test_no_two_modules_share_a_name() -> None:
    places = defaultdict(list)
    for module in MODULES:
        if module.stem not in NAMELESS:
            places[module.stem].append(_place(module))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_two_public_classes_share_a_name() -> None:
    places = defaultdict(list)
    for module in MODULES:
        for name in _public_classes(module):
            places[name].append(_place(module))
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in shared.items() if name not in SHARED_CLASS_NAMES} == {}


def test_no_folder_has_many_modules() -> None:
    counts = {
        _place(folder): sum(module.parent == folder and module.stem not in NAMELESS for module in MODULES)
        for folder in FOLDERS
    }
    crowded = {place: count for place, count in counts.items() if count > MOST_MODULES_IN_A_FOLDER}
    assert {place: count for place, count in crowded.items() if place not in CROWDED_FOLDERS} == {}


def test_no_module_is_long() -> None:
    lengths = {_place(module): len(module.read_text(encoding="utf-8").splitlines()) for module in MODULES}
    assert {place: lines for place, lines in lengths.items() if lines > MOST_LINES_IN_A_MODULE} == {}


def test_every_module_and_package_has_a_docstring() -> None:
    trees = {_place(module): ast.parse(module.read_text(encoding="utf-8")) for module in MODULES}
    assert [place for place, tree in trees.items() if not ast.get_docstring(tree)] == []
