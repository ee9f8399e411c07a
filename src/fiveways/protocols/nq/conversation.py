"""One NQ peer, whichever link carries it: the asking half of the conversation, and what holds both halves together.

It never accepts by itself: `{a, i}` goes out when the hub says that the request is safe. It never ends by a fault: what
cannot be read is answered by an error object, and the conversation goes on (NQ-a10).
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

import msgspec

from fiveways.errors import LocalProtocolError, RemoteProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.model.failures import Reason
from fiveways.protocols.base import Setup
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq import messages as nq
from fiveways.protocols.nq.errors import Err, plain
from fiveways.protocols.nq.frames import Free, is_name, serialize_frame
from fiveways.protocols.nq.incoming import Following, Incoming
from fiveways.protocols.nq.messages import decode, write
from fiveways.protocols.nq.outbox import Asking, Carrier, Common, Options, Waiting
from fiveways.protocols.nq.states import Asked, State, Step, advance
from fiveways.protocols.nq.streams import Receiver, Sender, acknowledge, resend
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL

VERSION = 1
"""Of what `export` gives."""


class NqConversation:
    """One NQ peer. Fulfils `base.Conversation`."""

    def __init__(self, setup: Setup) -> None:
        self.peer = setup.peer
        self.role = setup.role
        self.error: RemoteProtocolError | None = None
        self.closed = False
        self.named = ""
        """The id that the other side gave us, for the next link."""
        try:
            options = msgspec.convert(setup.options or {}, Options)
        except msgspec.ValidationError as exc:
            raise LocalProtocolError(f"options of nq: {exc}") from exc
        self._state: Enum = State.OPEN
        self._now = 0.0
        self._common = Common(options, setup.limits, setup.random)
        self._line = self._common.line
        self._words = self._common.words
        self._incoming = Incoming(self._common)
        self._waiting = Waiting(setup.limits)
        self._asking: OrderedDict[str, Asking] = OrderedDict()
        self._by_id: dict[str, Asking] = {}
        self._cancelled: deque[Asking] = deque()
        self._events = 0
        self._thanks: list[str] = []
        """Backchannels whose single answer has come in this packet."""
        self._announce()

    # What the runtime sees.

    def receive(self, packet: Packet, now: float) -> Sequence[hub.Word]:
        """Take one packet of the peer."""
        if self.closed:
            return ()
        self._now = now
        try:
            heard = decode(packet, self._common.limits)
        except RemoteProtocolError as error:
            code = "toolarge" if error.fault is Fault.TOO_LARGE else "malformed"
            self._line.say(write(nq.SystemNote(_local(code, str(error)))))
            return ()
        for message in heard:
            self._state = advance(self._state, message)
            self.RECEIVERS[type(message)](self, message, now)
            if self.closed:
                break
        self._give_thanks()
        if self._common.options.simplex:
            self._line.wake(now)
        return self._heard()

    def send(self, word: hub.Word, now: float) -> None:
        """Say a word to the peer."""
        sender = self.SENDERS.get(type(word))
        if sender is None:
            raise LocalProtocolError(f"NQ has no way to say {type(word).__name__}")
        if self.closed:
            raise LocalProtocolError("the link is closed")
        self._now = now
        sender(self, word, now)

    def outgoing(self) -> list[Packet]:
        """Hand over what is to be said, in as few packets as the limits allow (NQ-14)."""
        said = self._line.take(self._now)
        if len(said) <= 1:
            return [Packet(raw) for raw in said]
        limits = self._common.limits
        packets: list[Packet] = []
        batch: list[bytes] = []
        room = limits.max_text
        for raw in said:
            room -= len(raw) + 1
            if batch and (room < 1 or len(batch) == limits.max_batch):
                packets.append(serialize_frame(batch))
                batch = []
                room = limits.max_text - len(raw) - 1
            batch.append(raw)
        packets.append(serialize_frame(batch))
        return packets

    def deadline(self) -> float | None:
        """When something must be said again, or given up."""
        if self.closed:
            return None
        if self._words:
            return self._now
        oldest = next(iter(self._asking.values()), None)
        kept = self._incoming.requests.oldest()
        cancelled = self._cancelled[0] if self._cancelled else None
        times = [each.expires_at for each in (oldest, kept, cancelled) if each is not None]
        if (repeat := self._line.deadline()) is not None:
            times.append(repeat)
        return min(times, default=None)

    def wake(self, now: float) -> Sequence[hub.Word]:
        """Say again what was not reacted to; give up what is too old."""
        if self.closed:
            return ()
        self._now = now
        self._line.wake(now)
        self._incoming.expire(now)
        while self._cancelled and self._cancelled[0].expires_at <= now:
            self._finish(self._cancelled.popleft(), Step.EXPIRE)
        while self._asking and (oldest := next(iter(self._asking.values()))).expires_at <= now:
            self._fail(oldest, hub.Failure("", Reason.TIMEOUT, "the peer never answered"), Step.EXPIRE)
        return self._heard()

    def relink(self, now: float) -> None:
        """Go on over another link: all that the peer has not reacted to is said again at once."""
        self.closed = False
        self._state = State.OPEN
        self._now = now
        self._announce()
        for serving in self._incoming.requests.all():
            for item in (serving if serving.data else None, serving.sender):
                if item is not None:
                    self._line.renew(item)
        for asking in self._asking.values():
            self._line.renew(asking)
            if asking.sender is not None:
                self._line.renew(asking.sender)

    def export(self) -> dict[str, object]:
        """Return, as plain JSON, all that another conversation needs to go on in this one's place.

        What waits for its attachments is not on its way yet, and so not part of it.
        """
        now, incoming = self._now, self._incoming
        return {
            "version": VERSION,
            "named": self.named,
            "prefix": self._common.prefix,
            "minted": self._common.minted,
            "asking": [asking.export(now) for asking in self._asking.values()],
            "serving": [serving.export(now) for serving in incoming.requests.all()],
            "tombs": [[key, tomb.name, until - now] for key, tomb, until in incoming.tombs.all()],
            "following": [[target, each.subscription, each.envelope] for target, each in incoming.following.items()],
            "published": sorted(incoming.published),
        }

    @classmethod
    def restore(cls, setup: Setup, saved: Mapping[str, Any], now: float) -> Self:
        """Go on where an exported conversation has stopped: same identifiers, no answer lost, no request run twice."""
        if saved.get("version") != VERSION:
            raise LocalProtocolError(f"a saved conversation of version {saved.get('version')}, not {VERSION}")
        made = cls(setup)
        common, incoming = made._common, made._incoming
        made.named, common.prefix, common.minted = saved["named"], saved["prefix"], saved["minted"]
        incoming.restore(saved, now)
        for each in saved["asking"]:
            asking = Asking.restore(common, each, now)
            made._open(asking)
            if asking.state is Asked.CANCELLED:
                made._cancelled.append(asking)
        made.relink(now)
        return made

    # Our requests.

    def _ask(self, word: bridge.Said, now: float, extra: Free | None = None) -> Asking:
        hub_id = None if isinstance(word, hub.Event | hub.TopicClosed) else word.id
        self._check_room(word, hub_id)
        target, body, free = bridge.from_hub(word)
        if extra:
            free = extra if free is None else free | extra
        given = None if body is NULL else bridge.body_of(body)
        common, r = self._common, self._common.mint()
        verbose = common.options.verbose
        asking = Asking(common, r, target, type(word), hub_id)
        if isinstance(word, hub.Call) and word.more:
            part = write(nq.RequestPart(target, r, given or bridge.JSON_NULL, 1, None, verbose, "", free))
            asking.sender = Sender(common)
            asking.sender.add(self._fitting(part), end=False)
            self._line.push(asking.sender)
            asking.expires_at = now + common.options.request_ttl
            self._open(asking)
            self._line.rest(asking, now)
            return asking
        asking.data = self._fitting(write(nq.Request(target, r, given, verbose, "", free)))
        asking.expires_at = now + common.options.request_ttl
        self._open(asking)
        self._line.push(asking)
        return asking
