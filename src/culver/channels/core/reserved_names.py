"""The channels and keys that the service keeps for itself on every server.

A server holds, besides the messages that pass through it, the ring, the entries of those channels whose home it is,
the tails of these channels (each publisher's last sequence), the routes for its dispatcher and that one's report.
"""

RESERVED_PREFIX = b"__culver:"

#: Carries the ring whenever it changes; every client listens.
RING_CHANNEL = RESERVED_PREFIX + b"ring"
#: Carries what clients tell the server's dispatcher: barriers and finished moves.
DISPATCHER_CHANNEL = RESERVED_PREFIX + b"dispatcher"
#: Carries what clients measured, for the server's analyser.
LOAD_CHANNEL = RESERVED_PREFIX + b"load"
#: Tells the server's dispatcher that its routes have changed.
ROUTES_CHANNEL = RESERVED_PREFIX + b"routes"

RING_KEY = b"culver:ring"
PLAN_KEY = b"culver:plan"
#: A field of the plan that is always there. A server without it was started just now, and knows no entries yet.
PLAN_MARK = b""
ROUTES_KEY = b"culver:routes"
REPORT_KEY = b"culver:report"
LOAD_KEY = b"culver:load"
_TAIL_KEY = b"culver:tail:"


def inbox(client: int) -> bytes:
    """The channel on which a dispatcher answers one client."""
    return RESERVED_PREFIX + b"to:%x" % client


def tail_key(channel: bytes) -> bytes:
    """A hash at the channel's home: publisher -> epoch and last sequence."""
    return _TAIL_KEY + channel


def earlier_tail_key(channel: bytes) -> bytes:
    """The hash of tails before the current one, which expires with all publishers that have not written since."""
    return _TAIL_KEY + RESERVED_PREFIX + b"earlier:" + channel
