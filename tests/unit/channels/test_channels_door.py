import subprocess
import sys

import culver.channels

_PROBE = """
import sys
import culver.channels
print(*sorted({"httpx", "hiredis", "msgspec", "asyncio"} & set(sys.modules)))
"""


def test_the_door_offers_the_client() -> None:
    names: list[str] = vars(culver.channels)["__all__"]
    assert {"ChannelSubscription", "Channels", "LostMessages", "PubSub", "SyncChannels", "SyncPubSub"} <= {
        *names
    }
    assert all(getattr(culver.channels, name) is not None for name in names)


def test_importing_channels_loads_nothing_heavy() -> None:
    run = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
