"""Two programs at one hub, in two protocols: one registers a method and publishes, the other calls and subscribes.

fiveways serve                     in one terminal python examples/02_client.py       in another one
"""

import asyncio
import sys

import fiveways

HUB = "localhost:7500"


async def main(hub: str) -> None:
    """Register in UMQ, call from LRPM."""
    async with (
        fiveways.connect(f"umq+ws://{hub}") as shop,
        fiveways.connect(f"lrpm+ws://{hub}") as customer,
    ):

        async def price(item: str, pieces: int = 1) -> float:
            """Return the price of some pieces."""
            if item != "tea":
                raise fiveways.Fail(f"we have no {item}")
            return 2.5 * pieces

        await shop.register("Shop:price", price)
        print("two teas:", await customer.call("shop.price", {"item": "tea", "pieces": 2}))
        try:
            await customer.call("shop.price", ["coffee"])
        except fiveways.CallFailed as error:
            print("coffee:", error)
        async with customer.subscribe("shop.*.open") as events:
            await shop.publish("shop.front.open", True)
            async for event in events:
                print(event.topic, event.data)
                break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else HUB))
