"""Packages whose names are loaded when they are first used.

Importing such a package costs next to nothing: a command that only publishes loads no compiler, and Spark's driver
loads no kernels. As in SPEC 1 of Scientific Python, the imports that a type checker sees are the one list of the
package's names.

    if TYPE_CHECKING:
        from culver.matching.filter import Filter as Filter
    else:
        __getattr__ = lazy_names(__name__)
"""

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy_names(package: str, extra: str | None = None) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562) for the names that it imports under `if TYPE_CHECKING`. Where some of
    them need an extra, whoever uses one without it gets MissingExtra."""
    module = sys.modules[package]
    assert module.__file__ is not None
    home_of = _type_checking_imports(Path(module.__file__).read_text(encoding="utf-8"))
    vars(module)["__all__"] = sorted(home_of)
    vars(module)["__dir__"] = lambda: sorted({*vars(module), *home_of})

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(importlib.import_module(home_of[name]), name)
        except ModuleNotFoundError as exc:
            from culver.extras import EXTRAS, require

            if extra is not None and exc.name in EXTRAS[extra].packages:
                require(extra, f"{package}.{name}")
            raise
        setattr(module, name, value)
        return value

    return load


def _type_checking_imports(source: str) -> dict[str, str]:
    """The home of each name."""
    return {
        alias.name: statement.module
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module is not None
        for alias in statement.names
    }
