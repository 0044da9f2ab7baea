"""Which durable subscriptions a group follows, as the client asks for them."""

from collections.abc import Iterable

from culver.client.error_boundary import encode_message
from culver.errors import InvalidRequest
from culver.messages import MOST_FOLLOWED, Follow

_LONGEST_PREFIX = 128
# A site closes a connection for a larger message, unless its settings say otherwise.
_MOST_BYTES = 1024 * 1024


class GroupSelection:
    """A set, the subscriptions whose ids begin with a prefix, or those of a list: one of the three is given. Raises
    InvalidRequest for what no site would accept."""

    def __init__(
        self,
        *,
        set_name: str | None = None,
        prefix: str | None = None,
        subscriptions: Iterable[str] | None = None,
    ) -> None:
        self.set_name = set_name
        self.prefix = prefix
        self.subscriptions = None if subscriptions is None else _checked(subscriptions)
        if set_name is not None and not (isinstance(set_name, str) and set_name):
            raise InvalidRequest("the set needs a name", field="set")
        if prefix is not None and not (isinstance(prefix, str) and 1 <= len(prefix) <= _LONGEST_PREFIX):
            raise InvalidRequest(f"a prefix has 1 to {_LONGEST_PREFIX} characters", field="prefix")

    def __str__(self) -> str:
        if self.set_name is not None:
            return f"set {self.set_name!r}"
        if self.prefix is not None:
            return f"subscriptions with prefix {self.prefix!r}"
        return f"group of {len(self.subscriptions or ())} subscriptions"

    @property
    def can_end(self) -> bool:
        """Whether a site ends the group with its last member. Others may begin with a prefix at any time."""
        return self.prefix is None

    def follow(self, after: int | None) -> Follow:
        return Follow(set=self.set_name, prefix=self.prefix, subscriptions=self.subscriptions, after=after)


def _checked(subscriptions: Iterable[str]) -> list[str]:
    names = [] if isinstance(subscriptions, str) else list(dict.fromkeys(subscriptions))
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidRequest("a group is a list of ids of durable subscriptions", field="subscriptions")
    if len(names) > MOST_FOLLOWED:
        raise InvalidRequest(
            f"a group has at most {MOST_FOLLOWED} subscriptions; follow a set or a prefix",
            field="subscriptions",
        )
    if len(encode_message(Follow(subscriptions=names))) > _MOST_BYTES:
        raise InvalidRequest(
            "these ids are too long for one message; follow a set or a prefix", field="subscriptions"
        )
    return names
