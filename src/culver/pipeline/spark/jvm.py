"""The driver's Java virtual machine, started directly, with an archive of loaded classes if there is one.

PySpark uses a machine that already runs if two environment variables name it, and so it uses this one.
"""

import contextlib
import os
import shlex
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from culver.errors import Unavailable
from culver.pipeline.spark import java

_POLL_SECONDS = 0.01
_EXIT_SECONDS = 5.0
_OPTIONS_SETTING = "spark.driver.extraJavaOptions"
_MEMORY_SETTING = "spark.driver.memory"


class VirtualMachine:
    """Runs until `close`, or until this process ends, because it watches its standard input.

    The constructor does not wait for the machine, so that the caller can import PySpark meanwhile; `connect` does.
    """

    def __init__(self, settings: Mapping[str, str], options: Sequence[str] = ()) -> None:
        self._directory = tempfile.mkdtemp(prefix="culver-jvm-")
        self._connection = Path(self._directory) / "connection"
        arguments = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command = java.command(
            "org.apache.spark.deploy.SparkSubmit",
            [*arguments, "pyspark-shell"],
            [
                f"-Xmx{settings[_MEMORY_SETTING]}",
                *shlex.split(settings.get(_OPTIONS_SETTING, "")),
                *options,
            ],
        )
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env=self._environment(settings))

    def _environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        environment = {
            **os.environ,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection),
            "SPARK_CONNECT_MODE": "0",
            "PYTHONHASHSEED": "0",
        }
        if settings.get("spark.driver.bindAddress") == "127.0.0.1":
            # No other setting keeps Spark's web interface, if it is on, to the loopback address.
            environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if settings["spark.master"].startswith(("local", "spark://")):
            # With SPARK_HOME, workers would put an archive of PySpark without compiled modules first on their path
            # and import from there, which takes half a second in each of five processes.
            environment.pop("SPARK_HOME", None)
        else:
            environment["SPARK_HOME"] = str(java.spark_home())
        return environment

    def connect(self) -> None:
        """Wait until the machine listens, and tell PySpark where. Raises Unavailable if it ends before."""
        try:
            while not self._connection.exists():
                if self._process.poll() is not None:
                    raise Unavailable(
                        f"the Java virtual machine ended with code {self._process.returncode} before Spark started"
                    )
                time.sleep(_POLL_SECONDS)
            with self._connection.open("rb") as connection:
                (port,) = struct.unpack(">i", connection.read(4))
                secret = _read_text(connection)
        finally:
            with contextlib.suppress(OSError):
                self._connection.unlink(missing_ok=True)
                os.rmdir(self._directory)
        os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = secret

    def close(self, timeout_seconds: float = _EXIT_SECONDS) -> int | None:
        """End it and wait; kill it if it does not end in time. Returns its exit code, or None if it was killed."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _read_text(stream: IO[bytes]) -> str:
    (length,) = struct.unpack(">i", stream.read(4))
    return stream.read(length).decode()


def use_this_python() -> None:
    """Have workers run this Python, with these packages. Call it before the machine starts."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
