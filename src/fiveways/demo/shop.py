"""Who is in the shop: one service and one client in each protocol, and what the services do."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Any, Final

from fiveways.app.app import App
from fiveways.app.context import Context
from fiveways.app.responses import Fail, Reply
from fiveways.client.peer import Peer
from fiveways.demo.stats import DemoStats

PRICES: Final = {"rose": 2.5, "tulip": 1.2, "violet": 3.1, "fern": 4.0, "orchid": 12.0}
"""What is sold, and for how much."""
BEDS: Final = 4
MEASURED_BEDS: Final = (1, 2)
"""The beds with a thermometer."""
ARRANGING_SECONDS: Final = 0.3
"""Seconds that a bouquet takes."""
NEWS_TOPIC: Final = "shop.news"
OPEN_TOPIC: Final = "shop.open"
SENSORS_PATTERN: Final = "sensors.*.temperature"
PACKING_QUEUE: Final = "packing"
"""The queue of orders to be packed."""


@dataclass(frozen=True, slots=True)
class ShopRole:
    """One of the cast."""

    client: str
    """Who calls."""
    service: str
    """Who is called."""
    namespace: str
    """Under which its methods are."""


ROLES: Final = {
    "umq": ShopRole("web shop", "shop front", "front"),
    "umq36": ShopRole("cash desk", "old till", "till"),
    "lrpm-json": ShopRole("bookkeeper", "the books", "books"),
    "lrpm-cbor": ShopRole("buyer", "price list", "prices"),
    "mqtt-rpc": ShopRole("gardener", "greenhouse", "greenhouse"),
    "nq": ShopRole("courier", "order desk", "orders"),
    "zmq": ShopRole("", "label stamper", "labels"),
}


def front_app() -> App:
    """Return what the shop's front does (umq)."""
    app, numbers = App(), count(1)

    @app.method("Front.Show")
    async def show(text: str = "") -> dict[str, object]:
        """Show a notice in the window."""
        return {"text": text, "number": next(numbers)}

    return app


def till_app() -> App:
    """Return what the old till does (umq36)."""
    app, numbers = App(), count(1)

    @app.method("Till.Ring")
    async def ring(item: str, count: int = 1) -> dict[str, object]:
        """Ring up a sale; what is not sold here fails."""
        return {"number": next(numbers), "total": round(_price(item) * count, 2)}

    return app


def books_app() -> App:
    """Return what the bookkeeper's program does (lrpm, JSON)."""
    app, numbers, balance = App(), count(1), 0.0

    @app.method("books.enter")
    async def enter(text: str = "", amount: float = 0.0) -> dict[str, object]:  # noqa: ARG001  it is journaled
        """Enter an amount, and tell the balance."""
        nonlocal balance
        balance += amount
        return {"balance": round(balance, 2), "entries": next(numbers)}

    return app


def prices_app() -> App:
    """Return what the price list does (lrpm, CBOR)."""
    app = App()

    @app.method("prices.quote")
    async def quote(item: str) -> dict[str, object]:
        """Tell what a flower costs."""
        return {"item": item, "price": _price(item)}

    @app.method("prices.history")
    async def history(item: str) -> AsyncIterator[dict[str, object]]:
        """Tell what it cost, week by week: an answer in parts."""
        for week in range(5):
            yield {"item": item, "price": round(_price(item) * (1 - week / 20), 2)}

    @app.method("prices.appraise")
    async def appraise(context: Context, item: str) -> Reply:
        """Say what a photograph is worth, and send back its thumbnail: attachments both ways."""
        photographs = await context.attachments()
        thumbnails = [sha256(each).digest() for each in photographs]
        return Reply({"item": item, "bytes": sum(map(len, photographs))}, thumbnails)

    return app


def orders_app(ledger: DemoStats, desk: Peer) -> App:
    """Return what the order desk does (nq); it calls back over its own connection."""
    app, numbers = App(), count(1)

    @app.method("orders.place")
    async def place(item: str, count: int = 1) -> dict[str, object]:
        """Take an order, and have it packed."""
        number = next(numbers)
        if number % 5 == 0:
            await desk.push(PACKING_QUEUE, {"order": number, "item": item, "count": count})
        return {"number": number, "state": "placed"}

    @app.method("orders.arrange")
    async def arrange(context: Context, item: str, count: int = 1) -> dict[str, object]:
        """Bind a bouquet, which takes a while, and tell how far it is."""
        for done in range(1, 4):
            await asyncio.sleep(ARRANGING_SECONDS / 3)
            context.progress({"done": done, "total": 3}, "binding")
        return {"number": count, "state": f"a bouquet of {item}"}

    @app.method("orders.notify")
    async def notify(token: str) -> str:
        """Call back whoever left a token, once."""
        await desk.call(f"callback.{token}", ["your order is on its way"], timeout=5.0)
        ledger.callbacks += 1
        return "called back"

    return app


class Greenhouse:
    """The device behind the MQTT broker, as the schema has it."""

    def __init__(self, kinds: Any) -> None:  # noqa: ANN401  protobuf makes the classes
        self._types = kinds
        self._moisture = dict.fromkeys(range(1, BEDS + 1), 40.0)

    def temperature(self, bed: int, moment: float) -> float:
        """Return how warm it is: up and down within a minute."""
        return round(20 + bed + abs(moment % 60 - 30) / 10, 1)

    def _reading(self, bed: int) -> Any:  # noqa: ANN401
        if bed not in self._moisture:
            raise Fail(f"there is no bed {bed}", "no_bed", code=404)
        return self._types.methods["Measure"].response(bed=bed, temperature=20.0 + bed, moisture=self._moisture[bed])

    async def measure(self, request: Any) -> Any:  # noqa: ANN401
        """Tell how a bed is."""
        return self._reading(request.bed)

    async def water(self, request: Any) -> Any:  # noqa: ANN401
        """Water a bed, which dries by itself."""
        self._reading(request.bed)
        self._moisture[request.bed] = 40 + (self._moisture[request.bed] + request.litres) % 40
        return self._reading(request.bed)

    async def watch(self, request: Any) -> Any:  # noqa: ANN401
        """Tell how a bed is, three times."""
        for _ in range(3):
            yield self._reading(request.bed)


def _price(item: str) -> float:
    if item not in PRICES:
        raise Fail(f"we do not sell {item}", "app.err.not_sold", code=404, data={"item": item})
    return PRICES[item]
