"""Finds Java, makes the command line of a Spark process, and runs the driver's virtual machine.

Spark's own scripts start one virtual machine to work out the command line of the next; writing it here saves a second
at every start. A test compares it with what Spark's launcher says. This module does not import PySpark, which would
take longer than all it does.
"""

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from culver.errors import InvalidConfiguration, Unavailable

_POLL_SECONDS = 0.01
_EXIT_SECONDS = 5.0

JAVA_MISSING = """\
the Spark engine needs Java 17 or newer, and there is no java here. Install it with one of
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless
  Fedora:          sudo dnf install java-17-openjdk-headless
or start without Spark:  culver serve --engine inline"""

_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
# The options of Spark's launcher without `--add-modules=jdk.incubator.vector`, which only linear algebra uses.
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
_CONFIGURATION_DIRECTORIES = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


def find_java() -> Path:
    """The java of JAVA_HOME, else of PATH. Raises InvalidConfiguration with what to install."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return Path(home) / "bin" / "java"
    found = shutil.which("java")
    if found is None:
        raise InvalidConfiguration(JAVA_MISSING, field="pipeline.engine")
    return Path(found)


def spark_home() -> Path:
    """The Spark of SPARK_HOME, else the one inside the installed pyspark package."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise InvalidConfiguration("the package pyspark is not installed", field="pipeline.engine")
    return Path(spec.origin).parent


def class_path() -> list[str]:
    """Spark's jars in a fixed order, and the configuration directories that the environment names.

    It names every jar, because an archive of loaded classes fits one list only, and none that has a directory.
    """
    home = spark_home()
    jars = sorted(str(path) for path in (home / "jars").glob("*.jar"))
    if not jars:
        raise InvalidConfiguration(f"there are no jars of Spark in {home / 'jars'}", field="pipeline.engine")
    named = [os.environ[name] for name in _CONFIGURATION_DIRECTORIES if os.environ.get(name)]
    configuration = named if "SPARK_CONF_DIR" in os.environ else [str(home / "conf"), *named]
    return [entry for entry in configuration if Path(entry).is_dir()] + jars


def command(main_class: str, arguments: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """The command line that runs a class of Spark. Raises InvalidConfiguration without Java."""
    return [
        str(find_java()),
        "-cp",
        ":".join(class_path()),
        *options,
        *MODULE_OPTIONS,
        main_class,
        *arguments,
    ]


class VirtualMachine:
    """The driver's Java virtual machine. PySpark uses one that already runs if two environment variables name it. It
    runs until `close`, or until this process ends, because it watches its standard input.

    The constructor does not wait for the machine, so that the caller can import PySpark meanwhile; `connect` does.
    """

    def __init__(self, settings: Mapping[str, str], options: Sequence[str] = ()) -> None:
        # Only this user can look into the directory, and everybody sees arguments: settings may hold passwords.
        self._directory = Path(tempfile.mkdtemp(prefix="culver-jvm-"))
        self._connection = self._directory / "connection"
        properties, java_options = self._directory / "properties", self._directory / "options"
        properties.write_text("".join(map(_property, settings, settings.values())), encoding="utf-8")
        own_options = shlex.split(settings.get("spark.driver.extraJavaOptions", ""))
        java_options.write_text("".join(map(_quoted, own_options)), encoding="utf-8")
        line = command(
            "org.apache.spark.deploy.SparkSubmit",
            ["--properties-file", str(properties), "--load-spark-defaults", "pyspark-shell"],
            [f"-Xmx{settings['spark.driver.memory']}", f"@{java_options}", *options],
        )
        self._process = subprocess.Popen(line, stdin=subprocess.PIPE, env=self._environment(settings))

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
            environment["SPARK_HOME"] = str(spark_home())
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
                port, length = struct.unpack(">ii", connection.read(8))
                secret = connection.read(length).decode()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
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


def _property(name: str, value: str) -> str:
    """A line of a file of Java properties."""
    escaped = (
        re.sub(r"[\\=:#!\s]", lambda special: f"\\u{ord(special[0]):04x}", each) for each in (name, value)
    )
    return "=".join(escaped) + "\n"


def _quoted(option: str) -> str:
    """A line of a file of arguments for `java`."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"\n'


def use_this_python() -> None:
    """Have workers run this Python, with these packages. Call it before the machine starts."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
