"""A simulated Redis server as a node of the simulated network."""

from culver.simulation.redis.simulated_redis import OutputLimit, RedisSession, SimulatedRedis
from culver.simulation.simulated_network import ConnectionEnd, SimulatedNetwork
from culver.simulation.virtual_clock import VirtualClock


class RedisNode:
    """Runs a server that clients reach under the node's name. A command is a tuple of bytes, and the server carries
    it out when it arrives."""

    def __init__(
        self, name: str, clock: VirtualClock, network: SimulatedNetwork, limit: OutputLimit | None = None
    ) -> None:
        self.name = name
        self.clock = clock
        self.redis = SimulatedRedis(limit)
        self.is_running = False
        self._network = network

    def start(self) -> None:
        """Starts the server, empty."""
        self.is_running = True
        self._network.listen(self.name, lambda _: _RedisConnection(self))

    def crash(self, *, silently: bool = False) -> None:
        """Ends the server, and with ``silently`` its machine too: then clients are told by a time-out only."""
        self.is_running = False
        self._network.crash(self.name, silently=silently)
        self.redis.crash()


class _RedisConnection:
    """Carries one client's commands to the server, and the server's outputs to the client."""

    def __init__(self, node: RedisNode) -> None:
        self._node = node
        self._end: ConnectionEnd | None = None
        self._session: RedisSession | None = None

    def opened(self, end: ConnectionEnd) -> None:
        self._end = end
        self._session = self._node.redis.accept(self, self._node.clock.now)

    def received(self, end: ConnectionEnd, message: object) -> None:
        assert self._session is not None
        assert isinstance(message, tuple)
        self._node.redis.execute(self._session, message, self._node.clock.now)

    def closed(self, end: ConnectionEnd) -> None:
        assert self._session is not None
        self._node.redis.disconnected(self._session)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._end is None else self._end.unsent_bytes

    def send(self, output: object, size_bytes: int) -> None:
        assert self._end is not None
        self._end.send(output, size_bytes)

    def close(self) -> None:
        assert self._end is not None
        self._end.close()
