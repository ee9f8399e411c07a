"""Two programs at one hub, in two protocols: one offers a method and publishes, the other calls and listens.

fiveways serve                     in a first terminal
python examples/02_client.py       in a second one
"""

import asyncio
import sys

import fiveways

HUB = "localhost:7500"


async def main(hub: str) -> None:
    """Offer in UMQ, call from LRPM."""
    async with (
        fiveways.connect(f"umq+ws://{hub}") as shop,
        fiveways.connect(f"lrpm+ws://{hub}") as customer,
    ):

        async def price(item: str, pieces: int = 1) -> float:
            """What so many of it cost."""
            if item != "tea":
                raise fiveways.Fail(f"we have no {item}")
            return 2.5 * pieces

        await shop.register("Shop:price", price)
        print("two teas:", await customer.call("shop.price", {"item": "tea", "pieces": 2}))
        try:
            await customer.call("shop.price", ["coffee"])
        except fiveways.CallFailed as error:
            print("coffee:", error)
        async with customer.subscribe("shop.*.open") as doors:
            await shop.publish("shop.front.open", True)
            async for event in doors:
                print(event.topic, event.data)
                break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else HUB))
