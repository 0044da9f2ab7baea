"""Processes that outlive the command which started them, found again by more than their number.

The system gives a process number to another process some time after the first has ended. What a record says is
therefore the number together with the moment of the start and the run of the system; only a process that agrees in
all three is ever signalled.
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
        """Ask it to end, then make it; returns whether there was something to stop."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # From here on the descriptor is this process, whatever becomes of the number.
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
    """The record of a process that runs now. Raises ProcessLookupError if it has ended."""
    started = start_of(pid)
    if started is None:
        raise ProcessLookupError(f"{role} ended at once")
    return ProcessRecord(role, pid, started)


def start_of(pid: int) -> str | None:
    """When a process started; None if there is none, or only what its parent has not collected yet."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in "ZX":
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{fields[19]}"
