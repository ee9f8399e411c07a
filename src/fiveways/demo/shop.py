"""Roles and services of the shop: one service and one client per protocol."""

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
"""Items and their prices."""
BEDS: Final = 4
MEASURED_BEDS: Final = (1, 2)
"""Beds with a thermometer."""
ARRANGING_SECONDS: Final = 0.3
"""Duration of the method `orders.arrange`, in seconds."""
NEWS_TOPIC: Final = "shop.news"
OPEN_TOPIC: Final = "shop.open"
SENSORS_PATTERN: Final = "sensors.*.temperature"
PACKING_QUEUE: Final = "packing"
"""Work queue of orders to pack."""


@dataclass(frozen=True, slots=True)
class ShopRole:
    """The client and the service of one protocol."""

    client: str
    """Name of the client."""
    service: str
    """Name of the service."""
    namespace: str
    """Prefix of the service's methods."""


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
    """Return the methods of the shop front (umq)."""
    app, numbers = App(), count(1)

    @app.method("Front.Show")
    async def show(text: str = "") -> dict[str, object]:
        """Show a notice in the window."""
        return {"text": text, "number": next(numbers)}

    return app


def till_app() -> App:
    """Return the methods of the old till (umq36)."""
    app, numbers = App(), count(1)

    @app.method("Till.Ring")
    async def ring(item: str, count: int = 1) -> dict[str, object]:
        """Ring up a sale; fails for unknown items."""
        return {"number": next(numbers), "total": round(_price(item) * count, 2)}

    return app


def books_app() -> App:
    """Return the methods of the books (lrpm, JSON)."""
    app, numbers, balance = App(), count(1), 0.0

    @app.method("books.enter")
    async def enter(text: str = "", amount: float = 0.0) -> dict[str, object]:  # noqa: ARG001  recorded in the journal
        """Enter an amount, and return the balance."""
        nonlocal balance
        balance += amount
        return {"balance": round(balance, 2), "entries": next(numbers)}

    return app


def prices_app() -> App:
    """Return the methods of the price list (lrpm, CBOR)."""
    app = App()

    @app.method("prices.quote")
    async def quote(item: str) -> dict[str, object]:
        """Return the price of an item."""
        return {"item": item, "price": _price(item)}

    @app.method("prices.history")
    async def history(item: str) -> AsyncIterator[dict[str, object]]:
        """Return earlier prices as a stream."""
        for week in range(5):
            yield {"item": item, "price": round(_price(item) * (1 - week / 20), 2)}

    @app.method("prices.appraise")
    async def appraise(context: Context, item: str) -> Reply:
        """Appraise photographs, and return thumbnails: attachments in both directions."""
        photographs = await context.attachments()
        thumbnails = [sha256(photograph).digest() for photograph in photographs]
        return Reply({"item": item, "bytes": sum(map(len, photographs))}, thumbnails)

    return app


def orders_app(stats: DemoStats, desk: Peer) -> App:
    """Return the methods of the order desk (nq), which uses its own connection for callbacks."""
    app, numbers = App(), count(1)

    @app.method("orders.place")
    async def place(item: str, count: int = 1) -> dict[str, object]:
        """Place an order; each fifth goes to the packing queue."""
        number = next(numbers)
        if number % 5 == 0:
            await desk.push(PACKING_QUEUE, {"order": number, "item": item, "count": count})
        return {"number": number, "state": "placed"}

    @app.method("orders.arrange")
    async def arrange(context: Context, item: str, count: int = 1) -> dict[str, object]:
        """Arrange a bouquet, with progress."""
        for done in range(1, 4):
            await asyncio.sleep(ARRANGING_SECONDS / 3)
            context.progress({"done": done, "total": 3}, "binding")
        return {"number": count, "state": f"a bouquet of {item}"}

    @app.method("orders.notify")
    async def notify(token: str) -> str:
        """Call a callback once."""
        await desk.call(f"callback.{token}", ["your order is on its way"], timeout=5.0)
        stats.callbacks += 1
        return "called back"

    return app


class Greenhouse:
    """The device behind the MQTT broker, with the methods of the schema."""

    def __init__(self, service_types: Any) -> None:  # noqa: ANN401  classes generated by protobuf
        self._types = service_types
        self._moisture = dict.fromkeys(range(1, BEDS + 1), 40.0)

    def temperature(self, bed: int, moment: float) -> float:
        """Return the temperature, which varies within a minute."""
        return round(20 + bed + abs(moment % 60 - 30) / 10, 1)

    def _reading(self, bed: int) -> Any:  # noqa: ANN401
        if bed not in self._moisture:
            raise Fail(f"there is no bed {bed}", "no_bed", code=404)
        return self._types.methods["Measure"].response(bed=bed, temperature=20.0 + bed, moisture=self._moisture[bed])

    async def measure(self, request: Any) -> Any:  # noqa: ANN401
        """Return the reading of a bed."""
        return self._reading(request.bed)

    async def water(self, request: Any) -> Any:  # noqa: ANN401
        """Water a bed, and return its reading."""
        self._reading(request.bed)
        self._moisture[request.bed] = 40 + (self._moisture[request.bed] + request.litres) % 40
        return self._reading(request.bed)

    async def watch(self, request: Any) -> Any:  # noqa: ANN401
        """Return three readings of a bed as a stream."""
        for _ in range(3):
            yield self._reading(request.bed)


def _price(item: str) -> float:
    if item not in PRICES:
        raise Fail(f"we do not sell {item}", "app.err.not_sold", code=404, data={"item": item})
    return PRICES[item]
