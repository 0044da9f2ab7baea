"""Finds Java, and makes the command line of a Spark process.

Spark's own scripts start one virtual machine to work out the command line of the next; writing it here saves a second
at every start. A test compares it with what Spark's launcher says. This module does not import PySpark, which would
take longer than all it does.
"""

import importlib.util
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from culver.errors import InvalidConfiguration

JAVA_MISSING = """\
the Spark engine needs Java 17 or newer, and there is no java here. Install it with one of
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless
  Fedora:          sudo dnf install java-17-openjdk-headless
  macOS:           brew install openjdk@17
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
