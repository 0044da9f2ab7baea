"""Which subscriptions deliver to a channel."""

from collections.abc import Callable, Iterable

from culver.registry import Registration


class ChannelTargets:
    """The durable subscriptions in effect that name a channel, by id. `on_change` hears of each id whose channel may
    have changed; its owner sets it."""

    def __init__(self) -> None:
        self.current: dict[str, Registration] = {}
        self.on_change: Callable[[str], None] = lambda subscription: None

    def register(self, registrations: Iterable[Registration]) -> None:
        """Take note of durable registrations that began, changed or ended."""
        for registration in registrations:
            subscription = registration.id
            before = self.current.get(subscription)
            if registration.until is None and registration.channel is not None:
                self.current[subscription] = registration
            elif before is None or (registration.until is not None and before.number != registration.number):
                # An earlier registration of a subscription may be heard of after its successor.
                continue
            else:
                del self.current[subscription]
            self.on_change(subscription)
