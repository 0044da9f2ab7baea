"""The names that clients see, as regular expressions for `re.fullmatch` and for a JSON Schema's `pattern`."""

LIVE_PREFIX = "live-"
"""The start of every live subscription's id, and of no durable one's."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9._~-]"

SUBSCRIPTION_ID = rf"^{_NAME}{{0,127}}$"
DURABLE_ID = rf"^(?!{LIVE_PREFIX}){_NAME}{{0,127}}$"
DELIVERY_ID = rf"^{_NAME}{{0,127}}:[0-9]{{1,19}}$"

# Shorter than an id: the ids of a set's members begin with the set's name.
SET_NAME = rf"^(?!{LIVE_PREFIX}){_NAME}{{0,99}}$"
