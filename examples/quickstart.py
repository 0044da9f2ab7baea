"""Publish three events and receive the two that match.

Start a site first: culver serve --engine inline
"""

import asyncio

import culver


async def main() -> None:
    async with (
        culver.connect() as client,  # at CULVER_URL, or http://127.0.0.1:8080
        client.subscribe("price > 20") as messages,
    ):
        await client.publish(symbol="ABC", price=12.0)
        await client.publish([{"symbol": "XYZ", "price": 21.5}, {"symbol": "XYZ", "price": 22.0}])
        for _ in range(2):
            message = await anext(messages)
            print(message.offset, message["symbol"], message["price"])  # noqa: T201


asyncio.run(main())
