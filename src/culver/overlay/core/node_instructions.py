"""The instructions of an overlay node. The shell around it, or a simulation, carries them out in their
order."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from culver.matching import EncodedPredicate
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.neighbours import Neighbours
from culver.overlay.core.overlay_messages import OverlayMessage, Routed


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send a message on a link. Packets may be dropped where the link's queue is full; everything else is urgent."""

    link: int
    message: OverlayMessage


@dataclass(frozen=True, slots=True)
class Register:
    """Make this the predicate of a site's mailbox, and answer with `OverlayNode.registered`."""

    site: str
    version: int
    predicate: EncodedPredicate


@dataclass(frozen=True, slots=True)
class Unregister:
    """Remove the mailbox of a site that is no more."""

    site: str


@dataclass(frozen=True, slots=True)
class Append:
    """Append events of another site, (offset there, payload), to the log, and answer with `OverlayNode.appended`.
    `end` is the position that this site has reached in the origin's log then."""

    origin: str
    end: int
    events: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class MoveCursor:
    """A site has everything up to and including `offset` of its mailbox."""

    site: str
    offset: int


@dataclass(frozen=True, slots=True)
class Rewind:
    """Offer a site's mailbox again, behind offset `after`. What was read before must not be offered any more."""

    site: str
    after: int


@dataclass(frozen=True, slots=True)
class AnnounceGap:
    """Events of another site with offsets in `[start, end)` may be missing here. Store it: the stream goes on at
    `end`."""

    origin: str
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class StoreFloors:
    """Store `OverlayNode.floors` soon: a site has been met, and its old one would be wrong."""


@dataclass(frozen=True, slots=True)
class LeaveOverlay:
    """The site runs on an older copy of its data directory, and has given offsets from `given_anew` on a second time.
    Close all links, carry out nothing more of this node, and begin anew under a new key."""

    given_anew: int
    reason: str


@dataclass(frozen=True, slots=True)
class HearGossip:
    """Hand a message of the membership over that another site has sent to this one."""

    source: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Refuse:
    """Something was refused or dropped. `source` is who caused it, and `reason` why; both are few. An operator must
    act on a `severe` one."""

    source: str
    reason: str
    severe: bool = False


@dataclass(frozen=True, slots=True)
class CloseLink:
    link: int
    reason: str


Instruction = (
    SendMessage
    | Register
    | Unregister
    | Append
    | MoveCursor
    | Rewind
    | AnnounceGap
    | StoreFloors
    | LeaveOverlay
    | HearGossip
    | Refuse
    | CloseLink
)


class Addressed(Protocol):
    """A message that goes from site to site."""

    @property
    def destination(self) -> str: ...


Letter = TypeVar("Letter", bound=Addressed)
Further = TypeVar("Further")


class InstructionOutbox(Generic[Letter, Further]):
    """The instructions that a node gives in answer to one call, in their order. Reads the states and the neighbours
    that its owner changes. `send_letter` makes the instruction that sends a letter on a link. `Further` are the
    instructions of the node besides those that all nodes have."""

    def __init__(
        self,
        states: LinkStates,
        neighbours: Neighbours,
        send_letter: Callable[[int, Letter], Instruction | Further],
    ) -> None:
        self._states = states
        self._neighbours = neighbours
        self._send_letter = send_letter
        self._instructions: list[Instruction | Further] = []

    def append(self, instruction: Instruction | Further) -> None:
        self._instructions.append(instruction)

    def extend(self, instructions: Iterable[Instruction | Further]) -> None:
        self._instructions.extend(instructions)

    def send(self, link: int, message: OverlayMessage) -> None:
        self.append(SendMessage(link, message))

    def flood(self, message: OverlayMessage, but: int | None = None) -> None:
        """Send to every neighbour once, except to the one that a link leads to."""
        source = self._neighbours[but].site if but is not None else None
        for link in self._neighbours.links(but=source):
            self.send(link, message)

    def route(self, letter: Letter) -> None:
        """Send a letter one hop on. It is lost where there is no way: whoever waits for it asks again."""
        neighbour = self._states.next_hop(letter.destination)
        link = None if neighbour is None else self._neighbours.link_to(neighbour)
        if link is not None:
            self.append(self._send_letter(link, letter))

    def refuse(self, source: str, reason: str, *, severe: bool = False) -> None:
        self.append(Refuse(source, reason, severe))

    def take(self) -> list[Instruction | Further]:
        """Hand all instructions over, and begin anew."""
        taken, self._instructions = self._instructions, []
        return taken


NodeOutbox = InstructionOutbox[Routed, Instruction]
