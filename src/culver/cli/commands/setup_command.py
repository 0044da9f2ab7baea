"""`culver setup`: does once what the first start of a site would do."""

import importlib.util
import subprocess
import sys

import click

from culver.cli.startup_progress import StartupProgress


@click.command()
def setup() -> None:
    """Compile the kernels of the server now, not at its first start.

    That takes a minute or two, and happens once for each installation and user. Where Spark is installed, it also
    records the classes that Spark loads, which makes it start in less time. Run it as the user who runs the site; in
    an image of a container, as a step of its build.

    \b
    Example:
      culver setup
    """
    with StartupProgress() as startup:
        startup.progress("loading")
        from culver.kernel_setup import prepare_kernels

        recording = _record_spark_classes()
        directory = prepare_kernels(startup.progress)
        if recording is not None:
            startup.progress("recording the classes that Spark loads")
            recording.wait()
        seconds = startup.finish()
    kept = "nowhere" if directory is None else f"in {directory}"
    click.echo(f"Culver is set up; its compiled kernels are kept {kept} ({seconds:.1f} s)")


def _record_spark_classes() -> "subprocess.Popen[bytes] | None":
    """Starts a process beside the compilation. Its failure, such as a missing Java, is no failure of the setup: the
    archive saves time and nothing else."""
    if importlib.util.find_spec("pyspark") is None:
        return None
    return subprocess.Popen(
        [sys.executable, "-m", "culver.pipeline.spark.class_archive"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
