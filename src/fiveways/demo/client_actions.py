"""Actions of the demo clients: ordinary calls of all services, and less common features and failures."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from fiveways.client.mqtt.peer import MqttPeer
from fiveways.client.peer import Peer
from fiveways.demo.shop import ARRANGING_SECONDS, BEDS, NEWS_TOPIC, OPEN_TOPIC, PRICES, ROLES
from fiveways.demo.stats import NO_CALLEE, CallOutcome, DemoStats

_CALL_TIMEOUT: Final = 10.0
"""Timeout of an ordinary call, in seconds."""
_SHORT_TIMEOUT: Final = ARRANGING_SECONDS / 6
"""Timeout that is shorter than the method takes, in seconds."""
_ROSES: Final = {"item": "rose", "count": 3}
_PHOTOGRAPH: Final = bytes(range(256)) * 16


class DemoClient:
    """A client in one protocol."""

    def __init__(self, protocol: str, peer: Peer | MqttPeer, stats: DemoStats, random: Random) -> None:
        self.protocol = protocol
        self._peer = peer
        self._stats = stats
        self._random = random
        self._actions = _MQTT_ACTIONS if isinstance(peer, MqttPeer) else _ALL_ACTIONS

    @property
    def name(self) -> str:
        """The role of the client."""
        return ROLES[self.protocol].client

    def next_delay(self, mean: float) -> float:
        """Return the random delay until the next action, in seconds."""
        return self._random.uniform(0.5, 1.5) * mean

    async def call_service(self, callee: str) -> None:
        """Call a service once, so that each pair of protocols occurs."""
        await self._call(callee, *self._ordinary_arguments(callee))

    async def run_each_action(self) -> None:
        """Run each action once, so that even a short demo includes all."""
        for action in self._actions:
            await action(self)

    async def run_random_action(self) -> None:
        """Run a random action; failed calls are part of the demo."""
        await self._random.choices(list(self._actions), list(self._actions.values()))[0](self)

    def _add_message(self, outcome: CallOutcome, message: str) -> None:
        if outcome.has_result:
            self._stats.add_message(f"{self.name} {message}")

    # Ordinary calls.

    def _ordinary_arguments(self, callee: str) -> tuple[str, dict[str, object]]:
        """Return the method and the body of an ordinary call."""
        item, number = self._random.choice(list(PRICES)), self._random.randint(1, 9)
        bodies: dict[str, dict[str, object]] = {
            "front.show": {"text": f"fresh {item}s today"},
            "till.ring": {"item": item, "count": number},
            "books.enter": {"text": f"{number} {item}s", "amount": number * PRICES[item]},
            "prices.quote": {"item": item},
            "greenhouse.measure": {"bed": 1 + number % BEDS},
            "greenhouse.water": {"bed": 1 + number % BEDS, "litres": number / 2},
            "orders.place": {"item": item, "count": number},
            "labels.stamp": {"text": f"{number} {item}s"},
        }
        method = self._random.choice([name for name in bodies if name.startswith(f"{ROLES[callee].namespace}.")])
        return method, bodies[method]

    async def _call(self, callee: str, method: str, body: object, call_timeout: float = _CALL_TIMEOUT) -> None:
        with self._stats.count_call(self.protocol, callee, method):
            await self._peer.call(method, body, timeout=call_timeout)

    async def call_ordinary(self) -> None:
        """Call one of the services."""
        callees = [callee for callee in ROLES if (self.protocol, callee) != ("mqtt-rpc", "mqtt-rpc")]
        callee = self._random.choice(callees)
        await self._call(callee, *self._ordinary_arguments(callee))

    # Failures.

    async def order_unsold_item(self) -> None:
        """Order an unknown item: the method fails."""
        callee = self._random.choice(["umq36", "lrpm-cbor"])
        method = "till.ring" if callee == "umq36" else "prices.quote"
        await self._call(callee, method, {"item": "cactus"})

    async def water_unknown_bed(self) -> None:
        """Water a bed that does not exist: the device fails with its own error code."""
        await self._call("mqtt-rpc", "greenhouse.water", {"bed": 99, "litres": 1.0})

    async def call_unknown_method(self) -> None:
        """Call a method without a registration."""
        await self._call(NO_CALLEE, "front.refund", {"text": "please"})

    async def call_with_bad_arguments(self) -> None:
        """Call the shop front with an argument of the wrong type."""
        await self._call("umq", "front.show", {"text": 5})

    async def call_with_short_timeout(self) -> None:
        """Call a method that takes longer than the timeout."""
        self._stats.add_message(f"{self.name} does not wait for a bouquet ({self.protocol} ► nq, timeout)")
        await self._call("nq", "orders.arrange", _ROSES, _SHORT_TIMEOUT)

    async def cancel_call(self) -> None:
        """Order a bouquet, and cancel the call."""
        assert isinstance(self._peer, Peer)  # noqa: S101  not in _MQTT_ACTIONS
        self._stats.add_message(f"{self.name} cancels a bouquet ({self.protocol} ► nq)")
        with self._stats.count_call(self.protocol, "nq", "orders.arrange"):
            call = self._peer.begin("orders.arrange", _ROSES, timeout=_CALL_TIMEOUT)
            await asyncio.sleep(_SHORT_TIMEOUT)
            call.cancel()
            await call.result()

    # Less common features.

    async def call_with_progress(self) -> None:
        """Order a bouquet, and receive its progress."""
        notes: list[str] = []
        with self._stats.count_call(self.protocol, "nq", "orders.arrange") as outcome:
            if isinstance(self._peer, Peer):
                await self._peer.call(
                    "orders.arrange", _ROSES, timeout=_CALL_TIMEOUT, progress=lambda _, text: notes.append(text)
                )
            else:
                await self._peer.call("orders.arrange", _ROSES, timeout=_CALL_TIMEOUT)
        suffix = f", {len(notes)} notes on the way" if notes else ""
        self._add_message(outcome, f"gets a bouquet ({self.protocol} ► nq{suffix})")

    async def stream_history(self) -> None:
        """Read a streamed response."""
        parts = 0
        with self._stats.count_call(self.protocol, "lrpm-cbor", "prices.history") as outcome:
            async for _ in self._peer.stream("prices.history", {"item": "rose"}, timeout=_CALL_TIMEOUT):
                parts += 1
        self._add_message(outcome, f"reads old prices ({self.protocol} ► lrpm-cbor, {parts} parts)")

    async def stream_readings(self) -> None:
        """Read a streamed response of the device."""
        parts = 0
        with self._stats.count_call(self.protocol, "mqtt-rpc", "greenhouse.watch") as outcome:
            async for _ in self._peer.stream("greenhouse.watch", {"bed": 2}, timeout=_CALL_TIMEOUT):
                parts += 1
        self._add_message(outcome, f"watches bed 2 ({self.protocol} ► mqtt-rpc, {parts} parts)")

    async def send_attachment(self) -> None:
        """Send a photograph as an attachment, and receive a thumbnail."""
        assert isinstance(self._peer, Peer)  # noqa: S101
        with self._stats.count_call(self.protocol, "lrpm-cbor", "prices.appraise") as outcome:
            await self._peer.call_reply(
                "prices.appraise", {"item": "orchid"}, timeout=_CALL_TIMEOUT, attachments=[_PHOTOGRAPH]
            )
        self._add_message(
            outcome, f"sends a photograph ({self.protocol} ► lrpm-cbor, {len(_PHOTOGRAPH)} bytes attached)"
        )

    async def use_callback(self) -> None:
        """Pass a callback token to the order desk, which calls it."""
        assert isinstance(self._peer, Peer)  # noqa: S101
        texts: list[str] = []

        async def receive(text: str) -> str:
            texts.append(text)
            return "thank you"

        with self._stats.count_call(self.protocol, "nq", "orders.notify") as outcome:
            token = await self._peer.callback(receive)
            await self._peer.call("orders.notify", {"token": token}, timeout=_CALL_TIMEOUT)
        self._add_message(outcome, f"is called back (nq ► {self.protocol}: {', '.join(texts)})")

    async def publish_news(self) -> None:
        """Publish an event."""
        text = f"{self.name}: {self._random.choice(list(PRICES))}s are fresh"
        if isinstance(self._peer, Peer):
            await self._peer.publish(NEWS_TOPIC, text, timeout=_CALL_TIMEOUT)
        else:
            await self._peer.publish(NEWS_TOPIC.replace(".", "/"), text, timeout=_CALL_TIMEOUT)
        self._stats.publications += 1

    async def publish_retained(self) -> None:
        """Publish a retained value."""
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
"""Actions of a client behind an MQTT broker, with their weights."""
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
