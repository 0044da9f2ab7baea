"""The instructions that a node gives in answer to one call, in their order."""

from collections.abc import Iterable

from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.neighbours import Neighbours
from culver.overlay.core.node_instructions import Instruction, Refuse, SendMessage
from culver.overlay.core.overlay_messages import OverlayMessage, Routed


class NodeOutbox:
    """Reads the states and the neighbours that its owner changes."""

    def __init__(self, states: LinkStates, neighbours: Neighbours) -> None:
        self._states = states
        self._neighbours = neighbours
        self._instructions: list[Instruction] = []

    def append(self, instruction: Instruction) -> None:
        self._instructions.append(instruction)

    def extend(self, instructions: Iterable[Instruction]) -> None:
        self._instructions.extend(instructions)

    def send(self, link: int, message: OverlayMessage) -> None:
        self.append(SendMessage(link, message))

    def flood(self, message: OverlayMessage, but: int | None = None) -> None:
        """Send to every neighbour once, except to the one that a link leads to."""
        source = self._neighbours[but].site if but is not None else None
        for link in self._neighbours.links(but=source):
            self.send(link, message)

    def route(self, message: Routed) -> None:
        """Send a message one hop on. It is lost where there is no way: whoever waits for it asks again."""
        neighbour = self._states.next_hop(message.destination)
        link = None if neighbour is None else self._neighbours.link_to(neighbour)
        if link is not None:
            self.send(link, message)

    def refuse(self, source: str, reason: str, *, severe: bool = False) -> None:
        self.append(Refuse(source, reason, severe))

    def take(self) -> list[Instruction]:
        """Hand all instructions over, and begin anew."""
        taken, self._instructions = self._instructions, []
        return taken
