"""Runs command lines of Culver, or a script, as after `pip install culver`: with the packages of the client only.

python bare_client.py examples/quickstart.py
python bare_client.py '["pub", "{}"]' '["serve"]'     prints [exit code, standard output, standard error] of each
"""

import contextlib
import importlib.machinery
import io
import json
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType

# The client's packages, and what they bring along.
CLIENT = {"culver", "click", "httpx", "msgspec", "websockets"}
BROUGHT_ALONG = {"anyio", "certifi", "h11", "httpcore", "idna", "typing_extensions"}


class PathFinder(importlib.machinery.PathFinder):
    """Finds the packages of the client only. Modules of the standard library may be anywhere."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] in CLIENT | BROUGHT_ALONG | sys.stdlib_module_names:
            return super().find_spec(fullname, path, target)
        return None


def run_command(arguments: list[str]) -> tuple[int, str, str]:
    from culver.cli import main

    out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return code, _written(out), _written(err)


def _written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


if __name__ == "__main__":
    sys.meta_path[:] = [importlib.machinery.BuiltinImporter, importlib.machinery.FrozenImporter, PathFinder]
    for argument in sys.argv[1:]:
        if argument.endswith(".py"):
            runpy.run_path(argument, run_name="__main__")
        else:
            print(json.dumps(run_command(json.loads(argument))))  # noqa: T201 - the answer
