"""A real browser without a window."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-port=0",  # it stays until it is ended
)


def find_browser() -> str:
    """The path of a Chromium. Where there is none, the test is skipped."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (program := shutil.which(name)) is not None:
            return program
    pytest.skip("there is no Chromium here (Debian's package is chromium)")


@contextlib.contextmanager
def open_page(program: str, url: str) -> Iterator[None]:
    """A browser that shows the page, and leaves nothing behind; it is ended with the block."""
    # Its socket lies in the folder, so the path must be short: a test's own folder is not.
    with tempfile.TemporaryDirectory(prefix="culver-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={folder}/profile", url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": folder, "TMPDIR": folder},
            start_new_session=True,
        )
        try:
            yield
        finally:
            # Its own session, and so the process group, holds it and its children.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
