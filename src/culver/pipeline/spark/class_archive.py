"""An archive of the classes that Spark loads (CDS), which halves the work of its virtual machine at a start.

A process of its own records it once for each Java and Spark, in the user's cache directory:

    python -m culver.pipeline.spark.class_archive     starts a session, runs an empty batch, writes the archive

`make setup` runs it, and so does a site on Spark that finds none, in the background and at the lowest priority.
The archive is never needed: a virtual machine ignores one that does not fit, or is damaged.
"""

import fcntl
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from culver.errors import CulverError, Unavailable
from culver.pipeline.head import Head, HeadFile
from culver.pipeline.site_files import SiteFiles
from culver.pipeline.spark import java
from culver.pipeline.spark.java import VirtualMachine, use_this_python
from culver.pipeline.spark.session_settings import session_settings
from culver.pipeline.spark.signals import SignalSender

_BACKGROUND = "--background"
_WARM_SECONDS = 180.0
_WRITE_SECONDS = 180.0
_UNUSED_SECONDS = 30 * 24 * 3600.0


def archive_path() -> Path | None:
    """The archive's path for this Java and Spark, or None where the class path allows none."""
    entries = java.class_path()
    if any(os.path.isdir(entry) for entry in entries):
        return None
    home = java.find_java().resolve().parent.parent
    digest = hashlib.sha256()
    for path in [home / "lib" / "server" / "libjvm.so", home / "release", *map(Path, entries)]:
        if path.exists():
            found = path.stat()
            digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "culver" / f"spark-{digest.hexdigest()[:16]}.jsa"


def archive_options() -> list[str]:
    """Options for Java that use the archive, if there is one. Never fails."""
    try:
        path = archive_path()
    except (CulverError, OSError, RuntimeError):
        return []
    found = path is not None and path.exists()
    return [f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off"] if found else []


def start_recording(output: Path) -> "subprocess.Popen[bytes] | None":
    """Start a process that records in the background, if there is no archive and recording has not failed before.
    Closing its input ends it. Never fails."""
    try:
        path = archive_path()
        if path is None or path.exists() or path.with_suffix(".failed").exists():
            return None
        with output.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "culver.pipeline.spark.class_archive", _BACKGROUND],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    except (CulverError, OSError, RuntimeError):
        return None


def main(arguments: list[str]) -> int:
    background = _BACKGROUND in arguments
    path = archive_path()
    if path is None or path.exists():
        return 0
    if background:
        os.nice(19)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 0  # another process is recording it
        ended = threading.Event() if background else None
        made = path.with_suffix(".new")
        made.unlink(missing_ok=True)
        try:
            with tempfile.TemporaryDirectory(prefix="culver-") as directory:
                _record(made, Path(directory), ended)
            made.rename(path)  # it appears as a whole
        except Exception:
            if ended is not None and ended.is_set():
                return 0  # the parent process is gone, or needs the archive no more
            if background:
                path.with_suffix(".failed").touch()
            raise
        finally:
            made.unlink(missing_ok=True)
    for other in path.parent.glob("spark-*.jsa"):  # of an earlier Java or Spark
        if time.time() - other.stat().st_atime > _UNUSED_SECONDS:
            other.unlink(missing_ok=True)
    return 0


def _record(made: Path, directory: Path, ended: threading.Event | None) -> None:
    """Run one session with a query and a first batch; the virtual machine writes the archive when it exits. With
    `ended`, this fails at the end of standard input, whatever it waits for, and sets the event."""
    signals = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    signals.bind(str(directory / "signals"))
    signals.settimeout(_WARM_SECONDS)
    head = HeadFile.create(directory / "head")
    head.write(Head(0, 0, 0))
    use_this_python()
    settings = session_settings("local[1]", directory, {})
    machine = VirtualMachine(
        settings, [f"-XX:ArchiveClassesAtExit={made}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    )

    def fail_at_end_of_input(ended: threading.Event) -> None:
        while os.read(0, 4096):
            pass
        ended.set()
        machine.kill()
        SignalSender(str(directory / "signals")).send("ended")

    if ended is not None:
        threading.Thread(target=fail_at_end_of_input, args=(ended,), daemon=True).start()
    try:
        from culver.pipeline.spark.log_source import start_query

        machine.connect()
        options = {
            "data_dir": str(directory),
            "log": SiteFiles(directory).log_address,
            "master": "local[1]",
            "batch_events": 1,
            "forwarding": "adaptive",
            "signals": str(directory / "signals"),
            "checkpoint": str(directory / "checkpoint"),
        }
        session, query = start_query(options, lambda text: None)
        signals.recv(4096)  # the first batch has come so far, or the input has ended
        query.processAllAvailable()
        query.stop()
        session.stop()
        if machine.close(_WRITE_SECONDS) != 0 or not made.exists():
            raise Unavailable("the Java virtual machine wrote no archive of its classes")
    finally:
        machine.kill()
        head.close()
        signals.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
