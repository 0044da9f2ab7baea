"""The names that clients see. Patterns serve `re.fullmatch` and a JSON Schema's `pattern` alike."""

LIVE_PREFIX = "live-"
"""Every live subscription's id starts with it, and no durable one's."""

SITE_PREFIX = "site~"
"""The id of another site's mailbox is this and the site's key. No subscription of a user starts with it."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9._~-]"

SUBSCRIPTION_ID = rf"^{_NAME}{{0,127}}$"
DURABLE_ID = rf"^(?!{LIVE_PREFIX}|{SITE_PREFIX}){_NAME}{{0,127}}$"
DELIVERY_ID = rf"^{_NAME}{{0,127}}:[0-9]{{1,19}}$"

GROUP_POSITION = r"^[0-9]{1,19}(-[0-9a-f]{8})?$"

# Shorter than an id: the ids of a set's members begin with the set's name.
SET_NAME = rf"^(?!{LIVE_PREFIX}|{SITE_PREFIX}){_NAME}{{0,99}}$"

PUBLISHER_ID = r"^[A-Za-z0-9][A-Za-z0-9._~:/-]{0,199}$"

COLUMNAR = "columnar"
"""The filtering scheme (StreamHub, section 3.2.1) of every subscription that names no other, and of all members of
sets. A scheme is the name of a filter in `culver.plugins`; all of them give the same answers."""

ENCODED = "encoded"
"""The scheme of other sites' predicates, which have another form than filters. Registrations with it, and only those,
have ids with `SITE_PREFIX`: they are the mailboxes of other sites, and no subscriptions of users."""
