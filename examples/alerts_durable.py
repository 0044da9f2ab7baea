"""Handle alerts one by one without losing any, even across restarts of this program.

Run it, stop it with Ctrl-C, publish some alerts, and run it again:

    culver pub '{"level": "error", "text": "disk is full"}'
"""

import asyncio
import contextlib
import os

import culver

# Stop after this many alerts; 0 means never.
LIMIT = int(os.environ.get("ALERTS", "0"))


async def handle(alert: culver.Message) -> None:
    print(alert.delivery_id, alert["text"])  # noqa: T201


async def main() -> None:
    async with (
        culver.connect() as client,
        client.subscribe("level = 'error'", durable="alerts", ack="manual", gaps=True) as alerts,
    ):
        handled = 0
        async for alert in alerts:
            if isinstance(alert, culver.Gap):
                print(f"alerts {alert.start} to {alert.end - 1} may be missing: {alert.reason}")  # noqa: T201
                continue
            await handle(alert)
            # If the program dies before this line, the site delivers the alert again, under the same delivery id.
            await alert.ack()
            handled += 1
            if handled == LIMIT:
                return


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
