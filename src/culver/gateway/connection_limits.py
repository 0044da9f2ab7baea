"""Limits the connections of a gateway, in all and from one address, so that files always find a free handle.

    handles that the operating system grants the process
    | open at the start | reserve for files | connections that are served | spare |

A spare connection is one beyond the limits. Its first request is refused, unless it asks how the site is. When all
spare ones are taken, a further connection is refused at once.
"""

import logging
from collections import Counter
from dataclasses import dataclass

from starlette.types import Scope

from culver.config import GatewaySettings
from culver.errors import Unavailable
from culver.process_setup import free_handles

ADMISSION = "culver.admission"
"""The key of a connection's Admission in the state of its scopes."""

_MOST = 65_536
_LEAST = 8
_MOST_SPARE = 256

_logger = logging.getLogger(__name__)


class ConnectionLimits:
    """Counts the open connections of one server. Used from its event loop's thread only."""

    def __init__(self, most: int, most_of_address: int, most_spare: int) -> None:
        self._most = most
        self._most_of_address = most_of_address
        self._most_spare = most_spare
        self._served = 0
        self._spare = 0
        self._served_of_address: Counter[str] = Counter()

    def admit(self, address: str) -> "Admission":
        """Count a new connection; its owner releases the Admission."""
        refusal = self._refusal(address)
        kept = refusal is None or self._spare < self._most_spare
        if refusal is None:
            self._served += 1
            self._served_of_address[address] += 1
        elif kept:
            self._spare += 1
        return Admission(self, address, refusal, kept)

    def release(self, admission: "Admission") -> None:
        if admission.refusal is None:
            self._served -= 1
            self._served_of_address[admission.address] -= 1
            if not self._served_of_address[admission.address]:
                del self._served_of_address[admission.address]
        elif admission.kept:
            self._spare -= 1

    def _refusal(self, address: str) -> Unavailable | None:
        if self._served >= self._most:
            return Unavailable(
                f"{self._most} connections are open already (gateway.max_connections, or the system's limit of open "
                "files); try again soon",
                field="max_connections",
            )
        if self._served_of_address[address] >= self._most_of_address:
            return Unavailable(
                f"{self._most_of_address} connections of your address are open already "
                "(gateway.connections_per_address); use fewer, or try again soon",
                field="connections_per_address",
            )
        return None


@dataclass(slots=True, eq=False)
class Admission:
    """One open connection. It is served if there is no `refusal`, and cut at once unless `kept`."""

    _limits: ConnectionLimits
    address: str
    refusal: Unavailable | None
    kept: bool
    _released: bool = False

    def release(self) -> None:
        """The connection has ended; calling it twice changes nothing."""
        if not self._released:
            self._released = True
            self._limits.release(self)


def connection_limits(settings: GatewaySettings) -> ConnectionLimits:
    """The limits of the settings, within what the limit of open files allows."""
    room = max(2 * _LEAST, free_handles())
    spare = max(_LEAST, min(_MOST_SPARE, room // 8))
    most = min(_MOST, room - spare)
    if settings.max_connections > room - spare:
        _logger.warning(
            "gateway.max_connections is %d, but the limit of open files leaves room for %d connections",
            settings.max_connections,
            most,
        )
    elif settings.max_connections:
        most = settings.max_connections
    return ConnectionLimits(most, settings.connections_per_address or max(1, most // 2), spare)


def check_admission(scope: Scope) -> None:
    """Raises Unavailable for a request on a connection beyond the limits."""
    admission: Admission | None = (scope.get("state") or {}).get(ADMISSION)
    if admission is not None and admission.refusal is not None:
        refusal = admission.refusal
        raise Unavailable(refusal.message, field=refusal.field)
