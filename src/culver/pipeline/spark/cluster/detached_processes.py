"""Processes that outlive the command which started them, and how a later command finds them again.

The system reuses a process id some time after the process has ended. A record therefore holds the id together with
the time of the start and the id of the boot, and only a process that agrees in all three is ever signalled.
"""

import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One process, as written to a file."""

    role: str
    pid: int
    started: str  # boot id, and clock ticks from boot to the process's start

    @property
    def running(self) -> bool:
        return start_of(self.pid) == self.started

    def stop(self, patience_seconds: float) -> bool:
        """Ask it to end, then kill it; returns whether there was something to stop."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # From here on the descriptor means this process, even if its id is reused.
            if not self.running:
                return False
            for number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(descriptor, number)
                if select.select([descriptor], [], [], patience_seconds)[0]:
                    break
            return True
        except ProcessLookupError:
            return True
        finally:
            os.close(descriptor)


def record(role: str, pid: int) -> ProcessRecord:
    """The record of a running process. Raises ProcessLookupError if it has ended."""
    started = start_of(pid)
    if started is None:
        raise ProcessLookupError(f"{role} ended at once")
    return ProcessRecord(role, pid, started)


def start_of(pid: int) -> str | None:
    """The boot, and when in it a process started; None if there is none, or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in "ZX":
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{fields[19]}"
