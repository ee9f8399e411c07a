"""What the clients do: each calls the services of all others, and now and then something less plain."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from fiveways.client.mqtt.peer import MqttPeer
from fiveways.client.peer import Peer
from fiveways.demo.cast import ARRANGING, BEDS, CAST, FLOWERS, NEWS, OPEN
from fiveways.demo.ledger import NOBODY, Counted, Ledger

_PATIENCE: Final = 10.0
"""Seconds for an ordinary call."""
_IMPATIENCE: Final = ARRANGING / 6
"""Seconds for a call that takes longer."""
_ROSES: Final = {"item": "rose", "count": 3}
_PHOTOGRAPH: Final = bytes(range(256)) * 16


class Client:
    """One who calls, in one protocol."""

    def __init__(self, protocol: str, peer: Peer | MqttPeer, ledger: Ledger, random: Random) -> None:
        self.protocol = protocol
        self._peer = peer
        self._ledger = ledger
        self._random = random
        self._kinds = _MQTT if isinstance(peer, MqttPeer) else _ALL

    @property
    def name(self) -> str:
        """Who that is."""
        return CAST[self.protocol].client

    def moment(self, mean: float) -> float:
        """Return how many seconds pass until the next thing: things do not happen by the clock."""
        return self._random.uniform(0.5, 1.5) * mean

    async def greet(self, callee: str) -> None:
        """Call a service once, so that everybody knows everybody."""
        await self._call(callee, *self._plain(callee))

    async def rehearse(self) -> None:
        """Do each thing once, so that even a short show has all of them."""
        for kind in self._kinds:
            await kind(self)

    async def act(self) -> None:
        """Do the next thing, whatever that is; a call that fails is part of the show."""
        await self._random.choices(list(self._kinds), list(self._kinds.values()))[0](self)

    def _tell(self, counted: Counted, scene: str) -> None:
        if counted.has_result:
            self._ledger.tell(f"{self.name} {scene}")

    # Plain calls.

    def _plain(self, callee: str) -> tuple[str, dict[str, object]]:
        """Return a usual call of a service."""
        item, some = self._random.choice(list(FLOWERS)), self._random.randint(1, 9)
        body: dict[str, dict[str, object]] = {
            "front.show": {"text": f"fresh {item}s today"},
            "till.ring": {"item": item, "count": some},
            "books.enter": {"text": f"{some} {item}s", "amount": some * FLOWERS[item]},
            "prices.quote": {"item": item},
            "greenhouse.measure": {"bed": 1 + some % BEDS},
            "greenhouse.water": {"bed": 1 + some % BEDS, "litres": some / 2},
            "orders.place": {"item": item, "count": some},
            "labels.stamp": {"text": f"{some} {item}s"},
        }
        method = self._random.choice([name for name in body if name.startswith(f"{CAST[callee].namespace}.")])
        return method, body[method]

    async def _call(self, callee: str, method: str, body: object, patience: float = _PATIENCE) -> None:
        with self._ledger.calling(self.protocol, callee, method):
            await self._peer.call(method, body, timeout=patience)

    async def plain(self) -> None:
        """Call one of the services."""
        callees = [each for each in CAST if (self.protocol, each) != ("mqtt-rpc", "mqtt-rpc")]
        callee = self._random.choice(callees)
        await self._call(callee, *self._plain(callee))

    # What goes wrong.

    async def not_sold(self) -> None:
        """Ask for what nobody sells: the method fails."""
        callee = self._random.choice(["umq36", "lrpm-cbor"])
        method = "till.ring" if callee == "umq36" else "prices.quote"
        await self._call(callee, method, {"item": "cactus"})

    async def no_bed(self) -> None:
        """Water a bed that there is not: the device fails, with a code of its own."""
        await self._call("mqtt-rpc", "greenhouse.water", {"bed": 99, "litres": 1.0})

    async def no_method(self) -> None:
        """Call what nobody offers."""
        await self._call(NOBODY, "front.refund", {"text": "please"})

    async def bad_arguments(self) -> None:
        """Say something that the shop's front cannot read."""
        await self._call("umq", "front.show", {"text": 5})

    async def impatient(self) -> None:
        """Give up waiting for a bouquet."""
        self._ledger.tell(f"{self.name} does not wait for a bouquet ({self.protocol} ► nq, timeout)")
        await self._call("nq", "orders.arrange", _ROSES, _IMPATIENCE)

    async def cancel(self) -> None:
        """Order a bouquet, and cancel it."""
        assert isinstance(self._peer, Peer)  # noqa: S101  _MQTT has no such thing
        self._ledger.tell(f"{self.name} cancels a bouquet ({self.protocol} ► nq)")
        with self._ledger.calling(self.protocol, "nq", "orders.arrange"):
            call = self._peer.begin("orders.arrange", _ROSES, timeout=_PATIENCE)
            await asyncio.sleep(_IMPATIENCE)
            call.cancel()
            await call.result()

    # What is less plain.

    async def bouquet(self) -> None:
        """Order a bouquet, and hear how far it is."""
        told: list[str] = []
        with self._ledger.calling(self.protocol, "nq", "orders.arrange") as counted:
            if isinstance(self._peer, Peer):
                await self._peer.call(
                    "orders.arrange", _ROSES, timeout=_PATIENCE, progress=lambda _, text: told.append(text)
                )
            else:
                await self._peer.call("orders.arrange", _ROSES, timeout=_PATIENCE)
        heard = f", {len(told)} notes on the way" if told else ""
        self._tell(counted, f"gets a bouquet ({self.protocol} ► nq{heard})")

    async def history(self) -> None:
        """Read an answer in parts."""
        parts = 0
        with self._ledger.calling(self.protocol, "lrpm-cbor", "prices.history") as counted:
            async for _ in self._peer.stream("prices.history", {"item": "rose"}, timeout=_PATIENCE):
                parts += 1
        self._tell(counted, f"reads old prices ({self.protocol} ► lrpm-cbor, {parts} parts)")

    async def watch(self) -> None:
        """Read what the device answers in parts."""
        parts = 0
        with self._ledger.calling(self.protocol, "mqtt-rpc", "greenhouse.watch") as counted:
            async for _ in self._peer.stream("greenhouse.watch", {"bed": 2}, timeout=_PATIENCE):
                parts += 1
        self._tell(counted, f"watches bed 2 ({self.protocol} ► mqtt-rpc, {parts} parts)")

    async def photograph(self) -> None:
        """Send a photograph, and get a thumbnail."""
        assert isinstance(self._peer, Peer)  # noqa: S101
        with self._ledger.calling(self.protocol, "lrpm-cbor", "prices.appraise") as counted:
            await self._peer.call_reply(
                "prices.appraise", {"item": "orchid"}, timeout=_PATIENCE, attachments=[_PHOTOGRAPH]
            )
        self._tell(counted, f"sends a photograph ({self.protocol} ► lrpm-cbor, {len(_PHOTOGRAPH)} bytes attached)")

    async def callback(self) -> None:
        """Leave a token with the order desk, and be called back."""
        assert isinstance(self._peer, Peer)  # noqa: S101
        called: list[str] = []

        async def hear(text: str) -> str:
            called.append(text)
            return "thank you"

        with self._ledger.calling(self.protocol, "nq", "orders.notify") as counted:
            token = await self._peer.callback(hear)
            await self._peer.call("orders.notify", {"token": token}, timeout=_PATIENCE)
        self._tell(counted, f"is called back (nq ► {self.protocol}: {', '.join(called)})")

    async def news(self) -> None:
        """Publish something."""
        text = f"{self.name}: {self._random.choice(list(FLOWERS))}s are fresh"
        if isinstance(self._peer, Peer):
            await self._peer.publish(NEWS, text, timeout=_PATIENCE)
        else:
            await self._peer.publish(NEWS.replace(".", "/"), text, timeout=_PATIENCE)
        self._ledger.publications += 1

    async def open_shop(self) -> None:
        """Publish a value that is kept for those who come later."""
        assert isinstance(self._peer, Peer)  # noqa: S101
        await self._peer.publish(OPEN, {"open": True, "by": self.name}, retain=True, timeout=_PATIENCE)
        self._ledger.publications += 1


_MQTT: Final[dict[Callable[[Client], Awaitable[None]], int]] = {
    Client.plain: 100,
    Client.bouquet: 2,
    Client.history: 2,
    Client.news: 3,
    Client.not_sold: 1,
    Client.impatient: 1,
}
"""What a caller behind a broker does, and how often beside the rest."""
_ALL: Final = _MQTT | {
    Client.bad_arguments: 1,
    Client.no_method: 1,
    Client.no_bed: 1,
    Client.cancel: 1,
    Client.watch: 2,
    Client.photograph: 2,
    Client.callback: 2,
    Client.open_shop: 1,
}
