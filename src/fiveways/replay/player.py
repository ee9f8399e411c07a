"""A journal's inbound side, sent again to a hub.

Frames go out in the order and at the pace they came, and never before the causes they had then: what a session had been
answered by then must have been answered again, and what changes the hub, such as an offer or a subscription, waits for
all, and all for it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from fiveways.journal.rows import Record
from fiveways.model.secret_texts import STARS
from fiveways.pipeline.decode.rows import Message
from fiveways.replay.ear import REQUESTS, Ear
from fiveways.replay.judging import Difference, Exchange, Tally
from fiveways.replay.naming import pieces
from fiveways.replay.places import Places
from fiveways.replay.speech import Said, frame_of, listen, value_of
from fiveways.replay.talks import Talk, remember
from fiveways.replay.voice import Voice
from fiveways.replay.wires import NoEntry, Wire, settings_for
from fiveways.wire.packet import Packet

_OPENING: Final = frozenset({"hello", "proof"})
"""What we say in our own words."""
_CHANGES: Final = frozenset({"subscribe", "unsubscribe", "set", "unset"})
_HARMLESS: Final = frozenset(
    {"hub.echo", "hub.get", "hub.ping", "hub.publish", "hub.push", "hub.stats", "hub.time", "hub.traffic"}
)
"""Built-in methods of which others notice nothing, or need not before their next word."""
_LEAST: Final = 0.05
"""Seconds that are waited in any case."""
_GRACE: Final = 0.1
"""Seconds for what nobody expects to come nevertheless."""
_SECOND: Final = 1e9
_BREATH: Final = 64
"""Records after which others get a word in."""
_LEAVE: Final = 2.0
_Key = tuple[str, str]


class Options(msgspec.Struct, frozen=True):
    """How it is done."""

    places: Places
    speed: float = 1.0
    """How many times faster; infinite for flat out."""
    patience: float = 5.0
    """Seconds that an answer may take. Each that is missing halves them for the next."""
    limit: int | None = None
    """Frames that are sent at most."""
    protocol: str = ""
    session: str = ""
    token: str = ""
    identity: str = ""
    secret: str = ""


class Player:
    """Holds recorded conversations again."""

    def __init__(self, options: Options, told: Callable[[int], None] = lambda _count: None) -> None:
        """Make it; `told` hears how many records are done."""
        self._options = options
        self._told = told
        self.tally = Tally()
        self.sessions = 0
        """Conversations that were held again."""
        self.left_out: dict[str, int] = {}
        """Those that were not, by the reason."""
        self.redacted = 0
        """Frames that were sent with stars in them."""
        self.voice = Voice()
        self._ear = Ear(self.voice, self.tally)
        self._talks: dict[_Key, Talk] = {}
        self._gone: OrderedDict[_Key, None] = OrderedDict()
        self._patience = options.patience
        self._loop = asyncio.get_running_loop()
        self._began: tuple[float, int] | None = None
        self._frames = 0

    async def play(self, records: Iterable[Record]) -> None:
        """Send all of it, wait for what is still to come, and leave."""
        try:
            for count, record in enumerate(records, 1):
                await self._take(record)
                if not count % _BREATH:
                    self._told(_BREATH)
                    await asyncio.sleep(0)
                if self._is_enough and not any(talk.exchanges for talk in self._talks.values()):
                    break
            self._ear.is_after_end = True
            await self._until(lambda: not self._ear.expects)
            await asyncio.sleep(_GRACE)
        finally:
            await self._leave()
        for talk in self._talks.values():
            self._finish(talk, is_cut=True)
        self._ear.close()

    @property
    def _is_enough(self) -> bool:
        return self._options.limit is not None and self._frames >= self._options.limit

    # What was recorded.

    async def _take(self, record: Record) -> None:
        options = self._options
        if options.protocol and record.protocol != options.protocol:
            return
        if options.session and not record.session.startswith(options.session):
            return
        talk = self._talk(record)
        if talk is None or talk.why_not:
            return
        if record.is_mark:
            if record.kind == "close":
                await self._close(talk, record)
        elif record.direction == "out":
            self._ear.recall(talk, record)
        else:
            await self._say(talk, record)

    def _talk(self, record: Record) -> Talk | None:
        key = _key(record)
        talk = self._talks.get(key)
        if talk is None and key not in self._gone and not (record.is_mark and record.kind != "open"):
            found = self._options.places.address(record.protocol, record.transport)
            talk = self._talks[key] = Talk(record, found if isinstance(found, str) else "")
            if talk.why_not:
                why = f"{record.protocol}/{record.transport}: {talk.why_not}"
                self.left_out[why] = self.left_out.get(why, 0) + 1
        return talk

    async def _say(self, talk: Talk, record: Record) -> None:
        said, _ = listen(frame_of(record))
        kinds = {each.message.kind for each in said}
        if kinds & _OPENING:
            await self._link(talk, record, greets=True)
            return
        why_not = self._why_not(record, said, kinds)
        if why_not is None:
            await self._at_its_time(record)
            await self._causes(talk, said)
            why_not = None if await self._link(talk, record, greets=not talk.is_from_start) else "no connection"
        self._ear.open(talk, record.seq, said, is_sent=why_not is None)
        if why_not is not None:
            self.voice.unsent[why_not] += 1
            talk.has_gap |= record.payload is None
            return
        self._frames += 1
        payload = self.voice.with_tokens(record.payload or b"")
        self.redacted += STARS.encode() in payload
        for piece in pieces(talk.protocol, Packet(payload, record.kind == "text", record.channel or "")):
            ask = self.voice.say(talk, piece)
            if ask is not None:
                self._ear.answered(ask)
        if talk.wire is not None:
            await talk.wire.room()

    def _why_not(self, record: Record, said: list[Said], kinds: set[str]) -> str | None:
        """Return why a frame is not sent again."""
        if record.payload is None:
            return "left out of the journal"
        if not record.is_whole:
            return "cut in the journal"
        if kinds == {"set"} and value_of(said[0].body) == STARS:
            return "redacted"
        # Answers go on, for what was sent before to be answered.
        return "over the limit" if self._is_enough and (kinds & REQUESTS or not kinds) else None

    async def _at_its_time(self, record: Record) -> None:
        if self._began is None:
            self._began = self._loop.time(), record.at
        start, first = self._began
        wait = start + (record.at - first) / _SECOND / self._options.speed - self._loop.time()
        if wait > 0:
            await asyncio.sleep(wait)

    async def _causes(self, talk: Talk, said: list[Said]) -> None:
        """Wait for what had happened before a frame came."""
        due = self._ear.due
        if any(_changes_the_hub(each.message) for each in said):
            await self._until(lambda: not due)
        elif due:
            await self._until(lambda: not talk.due and not any(map(_was_a_change, due)))

    async def _until(self, is_ready: Callable[[], bool]) -> None:
        """Wait, but not for ever: what does not come by then is late, and nobody waits for it again."""
        changed = self._ear.changed
        deadline = self._loop.time() + self._patience
        while not is_ready():
            left = deadline - self._loop.time()
            if left <= 0:
                self._patience = max(self._patience / 2, _LEAST)
                self._ear.give_up()
                return
            changed.clear()
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                pass

    # Connections.

    async def _link(self, talk: Talk, record: Record, *, greets: bool) -> bool:
        """Have a connection; say whether there is one. Who did not greet then does not now."""
        wire, options = talk.wire, self._options
        if wire is not None and wire.is_closing:
            await asyncio.wait([wire.gone], timeout=_LEAVE)
        elif wire is not None and not wire.gone.done():
            return True
        address = options.places.address(talk.protocol, record.transport)
        if isinstance(address, str):
            return False
        if wire is not None and not wire.is_closing:
            self.tally.differs(Difference("session", "ended too early", talk.session, talk.protocol))
        settings = settings_for(address, options.token, options.identity, options.secret)
        wire = Wire(settings, lambda packet: self._ear.hear(talk, packet), lambda: self._ear.lost(talk))
        try:
            await wire.open(talk.peer, greets=greets)
        except NoEntry as exc:
            self.tally.differs(Difference("session", str(exc), talk.session, talk.protocol))
            talk.why_not = str(exc)
            return False
        self.sessions += talk.wire is None
        talk.wire, talk.peer = wire, wire.peer
        return True

    async def _close(self, talk: Talk, record: Record) -> None:
        if talk.wire is not None:
            await self._until(lambda: not self._ear.awaits(talk))
            talk.wire.close()
        if not talk.lasts:
            self._finish(talk)
            del self._talks[_key(record)]
            remember(self._gone, _key(record), None)

    def _finish(self, talk: Talk, *, is_cut: bool = False) -> None:
        """Say what became of requests that nobody waits for any more."""
        for waiting in talk.exchanges.values():
            for exchange in waiting:
                self._ear.due.discard(exchange)
                exchange.close(self.tally, is_cut=is_cut)
        talk.exchanges.clear()
        talk.due = 0

    async def _leave(self) -> None:
        wires = [talk.wire for talk in self._talks.values() if talk.wire is not None]
        for wire in wires:
            wire.close()
        if wires:
            await asyncio.wait([wire.gone for wire in wires], timeout=_LEAVE)


def _key(record: Record) -> _Key:
    """Return what tells conversations apart: one of NQ goes over several links, one after the other."""
    return record.run, (record.protocol == "nq" and record.peer) or record.session


def _changes_the_hub(message: Message) -> bool:
    """Say whether others may notice that a message was taken."""
    return message.kind in _CHANGES or (message.kind == "call" and _is_changing(message.method or ""))


def _was_a_change(exchange: Exchange) -> bool:
    return exchange.kind in _CHANGES or (exchange.kind == "call" and _is_changing(exchange.name))


def _is_changing(method: str) -> bool:
    return method.startswith("hub.") and method not in _HARMLESS
