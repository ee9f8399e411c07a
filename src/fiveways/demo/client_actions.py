"""What the clients do: each calls the services of all others, and now and then something less plain."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from fiveways.client.mqtt.peer import MqttPeer
from fiveways.client.peer import Peer
from fiveways.demo.shop import ARRANGING_SECONDS, BEDS, NEWS_TOPIC, OPEN_TOPIC, PRICES, ROLES
from fiveways.demo.stats import NO_CALLEE, CallOutcome, DemoStats

_CALL_TIMEOUT: Final = 10.0
"""Seconds for an ordinary call."""
_SHORT_TIMEOUT: Final = ARRANGING_SECONDS / 6
"""Seconds for a call that takes longer."""
_ROSES: Final = {"item": "rose", "count": 3}
_PHOTOGRAPH: Final = bytes(range(256)) * 16


class DemoClient:
    """One who calls, in one protocol."""

    def __init__(self, protocol: str, peer: Peer | MqttPeer, ledger: DemoStats, random: Random) -> None:
        self.protocol = protocol
        self._peer = peer
        self._stats = ledger
        self._random = random
        self._actions = _MQTT_ACTIONS if isinstance(peer, MqttPeer) else _ALL_ACTIONS

    @property
    def name(self) -> str:
        """Who that is."""
        return ROLES[self.protocol].client

    def next_delay(self, mean: float) -> float:
        """Return how many seconds pass until the next thing: things do not happen by the clock."""
        return self._random.uniform(0.5, 1.5) * mean

    async def call_service(self, callee: str) -> None:
        """Call a service once, so that everybody knows everybody."""
        await self._call(callee, *self._ordinary_arguments(callee))

    async def run_each_action(self) -> None:
        """Do each thing once, so that even a short show has all of them."""
        for kind in self._actions:
            await kind(self)

    async def run_random_action(self) -> None:
        """Do the next thing, whatever that is; a call that fails is part of the show."""
        await self._random.choices(list(self._actions), list(self._actions.values()))[0](self)

    def _add_message(self, counted: CallOutcome, scene: str) -> None:
        if counted.has_result:
            self._stats.add_message(f"{self.name} {scene}")

    # Plain calls.

    def _ordinary_arguments(self, callee: str) -> tuple[str, dict[str, object]]:
        """Return a usual call of a service."""
        item, some = self._random.choice(list(PRICES)), self._random.randint(1, 9)
        body: dict[str, dict[str, object]] = {
            "front.show": {"text": f"fresh {item}s today"},
            "till.ring": {"item": item, "count": some},
            "books.enter": {"text": f"{some} {item}s", "amount": some * PRICES[item]},
            "prices.quote": {"item": item},
            "greenhouse.measure": {"bed": 1 + some % BEDS},
            "greenhouse.water": {"bed": 1 + some % BEDS, "litres": some / 2},
            "orders.place": {"item": item, "count": some},
            "labels.stamp": {"text": f"{some} {item}s"},
        }
        method = self._random.choice([name for name in body if name.startswith(f"{ROLES[callee].namespace}.")])
        return method, body[method]

    async def _call(self, callee: str, method: str, body: object, patience: float = _CALL_TIMEOUT) -> None:
        with self._stats.count_call(self.protocol, callee, method):
            await self._peer.call(method, body, timeout=patience)

    async def call_ordinary(self) -> None:
        """Call one of the services."""
        callees = [each for each in ROLES if (self.protocol, each) != ("mqtt-rpc", "mqtt-rpc")]
        callee = self._random.choice(callees)
        await self._call(callee, *self._ordinary_arguments(callee))

    # What goes wrong.

    async def order_unsold_item(self) -> None:
        """Ask for what nobody sells: the method fails."""
        callee = self._random.choice(["umq36", "lrpm-cbor"])
        method = "till.ring" if callee == "umq36" else "prices.quote"
        await self._call(callee, method, {"item": "cactus"})

    async def water_unknown_bed(self) -> None:
        """Water a bed that there is not: the device fails, with a code of its own."""
        await self._call("mqtt-rpc", "greenhouse.water", {"bed": 99, "litres": 1.0})

    async def call_unknown_method(self) -> None:
        """Call what nobody offers."""
        await self._call(NO_CALLEE, "front.refund", {"text": "please"})

    async def call_with_bad_arguments(self) -> None:
        """Say something that the shop's front cannot read."""
        await self._call("umq", "front.show", {"text": 5})

    async def call_with_short_timeout(self) -> None:
        """Give up waiting for a bouquet."""
        self._stats.add_message(f"{self.name} does not wait for a bouquet ({self.protocol} ► nq, timeout)")
        await self._call("nq", "orders.arrange", _ROSES, _SHORT_TIMEOUT)

    async def cancel_call(self) -> None:
        """Order a bouquet, and cancel it."""
        assert isinstance(self._peer, Peer)  # noqa: S101  _MQTT has no such thing
        self._stats.add_message(f"{self.name} cancels a bouquet ({self.protocol} ► nq)")
        with self._stats.count_call(self.protocol, "nq", "orders.arrange"):
            call = self._peer.begin("orders.arrange", _ROSES, timeout=_CALL_TIMEOUT)
            await asyncio.sleep(_SHORT_TIMEOUT)
            call.cancel()
            await call.result()

    # What is less plain.

    async def call_with_progress(self) -> None:
        """Order a bouquet, and hear how far it is."""
        told: list[str] = []
        with self._stats.count_call(self.protocol, "nq", "orders.arrange") as counted:
            if isinstance(self._peer, Peer):
                await self._peer.call(
                    "orders.arrange", _ROSES, timeout=_CALL_TIMEOUT, progress=lambda _, text: told.append(text)
                )
            else:
                await self._peer.call("orders.arrange", _ROSES, timeout=_CALL_TIMEOUT)
        heard = f", {len(told)} notes on the way" if told else ""
        self._add_message(counted, f"gets a bouquet ({self.protocol} ► nq{heard})")

    async def stream_history(self) -> None:
        """Read an answer in parts."""
        parts = 0
        with self._stats.count_call(self.protocol, "lrpm-cbor", "prices.history") as counted:
            async for _ in self._peer.stream("prices.history", {"item": "rose"}, timeout=_CALL_TIMEOUT):
                parts += 1
        self._add_message(counted, f"reads old prices ({self.protocol} ► lrpm-cbor, {parts} parts)")

    async def stream_readings(self) -> None:
        """Read what the device answers in parts."""
        parts = 0
        with self._stats.count_call(self.protocol, "mqtt-rpc", "greenhouse.watch") as counted:
            async for _ in self._peer.stream("greenhouse.watch", {"bed": 2}, timeout=_CALL_TIMEOUT):
                parts += 1
        self._add_message(counted, f"watches bed 2 ({self.protocol} ► mqtt-rpc, {parts} parts)")

    async def send_attachment(self) -> None:
        """Send a photograph, and get a thumbnail."""
        assert isinstance(self._peer, Peer)  # noqa: S101
        with self._stats.count_call(self.protocol, "lrpm-cbor", "prices.appraise") as counted:
            await self._peer.call_reply(
                "prices.appraise", {"item": "orchid"}, timeout=_CALL_TIMEOUT, attachments=[_PHOTOGRAPH]
            )
        self._add_message(
            counted, f"sends a photograph ({self.protocol} ► lrpm-cbor, {len(_PHOTOGRAPH)} bytes attached)"
        )

    async def use_callback(self) -> None:
        """Leave a token with the order desk, and be called back."""
        assert isinstance(self._peer, Peer)  # noqa: S101
        called: list[str] = []

        async def hear(text: str) -> str:
            called.append(text)
            return "thank you"

        with self._stats.count_call(self.protocol, "nq", "orders.notify") as counted:
            token = await self._peer.callback(hear)
            await self._peer.call("orders.notify", {"token": token}, timeout=_CALL_TIMEOUT)
        self._add_message(counted, f"is called back (nq ► {self.protocol}: {', '.join(called)})")

    async def publish_news(self) -> None:
        """Publish something."""
        text = f"{self.name}: {self._random.choice(list(PRICES))}s are fresh"
        if isinstance(self._peer, Peer):
            await self._peer.publish(NEWS_TOPIC, text, timeout=_CALL_TIMEOUT)
        else:
            await self._peer.publish(NEWS_TOPIC.replace(".", "/"), text, timeout=_CALL_TIMEOUT)
        self._stats.publications += 1

    async def publish_retained(self) -> None:
        """Publish a value that is kept for those who come later."""
        assert isinstance(self._peer, Peer)  # noqa: S101
        await self._peer.publish(OPEN_TOPIC, {"open": True, "by": self.name}, retain=True, timeout=_CALL_TIMEOUT)
        self._stats.publications += 1


_MQTT_ACTIONS: Final[dict[Callable[[DemoClient], Awaitable[None]], int]] = {
    DemoClient.call_ordinary: 100,
    DemoClient.call_with_progress: 2,
    DemoClient.stream_history: 2,
    DemoClient.publish_news: 3,
    DemoClient.order_unsold_item: 1,
    DemoClient.call_with_short_timeout: 1,
}
"""What a caller behind a broker does, and how often beside the rest."""
_ALL_ACTIONS: Final = _MQTT_ACTIONS | {
    DemoClient.call_with_bad_arguments: 1,
    DemoClient.call_unknown_method: 1,
    DemoClient.water_unknown_bed: 1,
    DemoClient.cancel_call: 1,
    DemoClient.stream_readings: 2,
    DemoClient.send_attachment: 2,
    DemoClient.use_callback: 2,
    DemoClient.publish_retained: 1,
}
