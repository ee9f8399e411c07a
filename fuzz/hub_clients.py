"""The fuzzer's clients: real conversations of each protocol, whose frames may be damaged on their way to the hub."""

import hmac
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from fiveways.errors import FivewaysError, LocalProtocolError
from fiveways.model import messages as words
from fiveways.protocols import registry
from fiveways.protocols.base import Conversation, ConversationSetup, Role
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.transports.http import Response
from fiveways.transports.memory import MemoryLink
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Text, Value
from fuzz import hub_grammar
from fuzz.fuzz_target import BINARY, SPLIT, seeds
from fuzz.hub_simulation import SECRET, TOKENS, SimulatedHub
from fuzz.mutation import mutated
from fuzz.virtual_time import now

PATHS: Final = {"umq": "/umq", "umq36": "/umq36", "lrpm-json": "/lrpm", "lrpm-cbor": "/lrpm", "nq": "/nq"}
KINDS: Final = (*PATHS, "mqtt-rpc")
_TOPICS: Final = ("/alpha", "/beta", "/hub", "/callback", "/Meter/Read", "sensors/a/heat", "fiveways/hubs/x", "/none")
_DOUBLED: Final = 0.05
"""The part of the frames of NQ that arrive twice, which must make no difference."""
_MOST: Final = 64
"""Things that a client remembers of each kind."""


class Client:
    """One peer. Fulfils `transports.base.Receiver`."""

    def __init__(self, number: int, kind: str, tokens: list[str], peers: list[str], count: Callable[[], None]) -> None:
        """Make it; `tokens` and `peers` are shared by all clients, `count` is called for each frame to the hub."""
        self.number, self.kind, self._count = number, kind, count
        self.spec = registry.load(kind)
        self.identity = ("", "", "ada", "bob")[number % 4]
        self.damage = 0.0
        self.is_trusting = True
        """No frame of it was damaged, so that all that it was promised must come."""
        self.link: MemoryLink | None = None
        self.accepted: set[str] = set()
        """Requests that the hub has accepted and not answered."""
        self._answered: set[str] = set()
        self._cancelled: set[str] = set()
        self._tokens, self._peers = tokens, peers
        self._work: list[words.HubMessage] = []
        self._owed: list[str] = []
        """Attachments that it has announced."""
        self._open: list[str] = []
        self._callbacks: set[str] = set()
        self._ids = 0
        self._session = ""
        self._life: SimulatedHub | None = None
        self._chance = Random(number)
        self._begin()

    @property
    def remote(self) -> str:
        """Its address: some clients share one."""
        return f"10.0.0.{self.number % 3}:{4000 + self.number}"

    def _begin(self) -> None:
        chance = Random(self.number)
        self.talk: Conversation = self.spec.create_conversation(
            ConversationSetup(f"c{self.number}", Role.CLIENT, chance, Limits(), None)
        )

    # Links.

    def connect(self, life: SimulatedHub) -> None:
        """Connect, unless it is connected."""
        if self._life is not life:
            self._life, self.link = life, None
        if self.link is not None:
            return
        if self.kind == "mqtt-rpc":
            return
        is_nq = isinstance(self.talk, NqConversation)
        peer = self.talk.assigned_peer_id if isinstance(self.talk, NqConversation) else ""
        token = TOKENS.get(self.identity, "") if is_nq or self.number % 8 < 4 else ""
        self.link = link = life.link(PATHS[self.kind], self.remote, token, peer)
        link.attach(self)
        if isinstance(self.talk, NqConversation):
            self.talk.reconnect(now())
            self.flush()
            return
        self._begin()
        for each in (self._work, self._owed, self._open):
            each.clear()
        self.say(self._hello(with_token=not token))

    def _hello(self, *, with_token: bool) -> words.HubMessage:
        token = TOKENS.get(self.identity, "") if with_token else ""
        if not token:
            return words.Hello()
        if self.spec.supports_challenge and self.identity == "ada":
            return words.Hello(Value({"identity": "ada"}))
        return words.Hello(Value({"token": token}) if self.spec.supports_challenge else Text(token))

    def cut(self) -> None:
        """Lose the link."""
        if self.link is not None:
            self.link.abort()
            self.link = None

    def leave(self) -> None:
        """Close the link in good order."""
        if self.link is not None:
            with suppress(LocalProtocolError):
                self.talk.send(words.Goodbye("bye"), now())
            self.flush()
            self.link.close()
            self.link = None

    def pause(self, *, is_paused: bool) -> None:
        """Read nothing more, or go on."""
        if self.link is not None:
            (self.link.pause_reading if is_paused else self.link.resume_reading)()

    # Calls from the link.

    def received(self, packet: Packet) -> None:
        """Hear the hub."""
        self._hear(self.talk.receive(packet, now()))
        self.flush()

    def progressed(self, size: int) -> bool:
        """Nothing large comes."""
        return True

    def writable(self) -> None:
        """Nothing waits here."""

    def lost(self, _reason: str) -> None:
        """Handle the end of the link."""
        if self.link is not None and self.link._is_gone:
            self.link = None

    def wake(self) -> None:
        """Let the conversation say again what is due."""
        deadline = self.talk.deadline()
        if deadline is not None and deadline <= now():
            self._hear(self.talk.wake(now()))
            self.flush()

    def said_at_broker(self, topic: str, payload: bytes) -> None:
        """Hear what the hub publishes."""
        self._hear(self.talk.receive(Packet(payload, False, topic), now()))
        self.flush()

    def _hear(self, heard: Sequence[words.HubMessage]) -> None:
        for word in heard:
            match word:
                case words.Call() | words.Discover():
                    self._work = [*self._work[-_MOST:], word]
                case words.Challenge():
                    self._prove(word)
                case words.Welcome():
                    self._welcome(word)
                case words.Accepted():
                    self._accepted(word.id)
                case words.Result() | words.Failure():
                    self._result(word)
                case _:
                    pass

    def _prove(self, word: words.Challenge) -> None:
        with suppress(FivewaysError):
            match word.body.value():
                case {"nonce": str(nonce)}:
                    mac = hmac.new(SECRET.encode(), nonce.encode(errors="replace"), "sha256").hexdigest()
                    self.say(words.Proof(Value({"mac": mac})))

    def _welcome(self, word: words.Welcome) -> None:
        with suppress(FivewaysError):
            match word.body.value():
                case {"session": str(session)}:
                    self._peers.append(session)

    def _accepted(self, name: str) -> None:
        if name not in self._answered and name not in self._cancelled:
            self.accepted.add(name)

    def _result(self, word: words.Result | words.Failure) -> None:
        if isinstance(word, words.Result) and not word.last:
            return
        if self.is_trusting and self.kind == "nq":
            assert word.id not in self._answered, f"request {word.id} was answered twice"
        self._answered.add(word.id)
        self.accepted.discard(word.id)
        if isinstance(word, words.Result) and word.id in self._callbacks:
            with suppress(FivewaysError):
                self._tokens.append(str(word.body.value() if word.body is not None else "").lower())

    # Frames that it sends.

    def act(self, chance: Random, damage: float) -> None:
        """Say something."""
        self.damage, self._chance = damage, chance
        for _ in range(chance.choice((1, 1, 2, 4))):
            pick = chance.random()
            if pick < 0.75:
                self.ask(hub_grammar.request(chance, self._name(), self._attachments(), self._tokens, self._peers))
            elif pick < 0.9:
                self.say(hub_grammar.remark(chance, self._open))
            else:
                self._attach()
        self.flush()

    def ask(self, word: words.HubMessage) -> None:
        """Make a request."""
        name = str(getattr(word, "id", ""))
        self._open = [*self._open[-_MOST:], name]
        if isinstance(word, words.Call) and word.method == "hub.callback":
            self._callbacks.add(name)
        if isinstance(word, words.Call) and word.method == "app.dismiss":
            self.is_trusting = False  # its session ends, with all that was kept for it
        self.say(word)

    def answer(self, chance: Random, damage: float) -> None:
        """Answer some of what it was asked."""
        self.damage, self._chance = damage, chance
        for _ in range(min(len(self._work), chance.choice((1, 2, 8)))):
            asked = chance.choice(self._work[-8:])
            told = hub_grammar.answer(chance, asked, self._attachments())
            if isinstance(told, words.Result | words.Failure | words.Description) and getattr(told, "last", True):
                self._work.remove(asked)
            self.say(told)
        self._attach()
        self.flush()

    def serve(self) -> None:
        """Answer all that it was asked, without damage."""
        self.damage = 0.0
        work, self._work = self._work, []
        for asked in work:
            self.say(words.Result(str(getattr(asked, "id", "")), Value("done")))
        self.flush()

    def flood(self, chance: Random) -> None:
        """Publish much on one topic."""
        where, size = hub_grammar.topic(chance), chance.choice((10, 3000))
        for number in range(chance.choice((5, 30))):
            self.say(words.Publish(None, where, Value(f"{number}" + "z" * size)))
        self.flush()

    def garble(self, chance: Random) -> None:
        """Send frames that were not made for this hub: a dialogue of the vectors, mostly damaged."""
        self.is_trusting = False
        known = seeds(self.spec)
        data = chance.choice(known) if chance.random() < 0.3 else mutated(chance, known)
        is_text, channel = not (data[:1] and data[0] & BINARY), chance.choice(_TOPICS)
        for payload in data[1:].split(SPLIT)[:8]:
            self._write(Packet(payload, is_text, channel))

    def say(self, word: words.HubMessage) -> None:
        """Say a word, if the protocol can."""
        if isinstance(word, words.Cancel):
            self._cancelled.add(word.id)
            self.accepted.discard(word.id)
        with suppress(LocalProtocolError):
            self.talk.send(word, now())

    def _name(self) -> str:
        self._ids += 1
        return f"{self.number}r{self._ids}"

    def _attachments(self) -> tuple[str, ...]:
        if self._chance.random() < 0.85:
            return ()
        names = tuple(f"{self.number}a{self._ids}x{each}" for each in range(self._chance.choice((1, 1, 2))))
        self._owed += names
        return names

    def _attach(self) -> None:
        while self._owed and self._chance.random() < 0.7:
            name = self._owed.pop(0)
            error = "gone" if self._chance.random() < 0.2 else None
            self.say(words.Attachment(name, b"d" * self._chance.choice((0, 1, 100, 5000)), error))

    def flush(self) -> None:
        """Write what the conversation has to say, some of it damaged."""
        for packet in self.talk.take_packets():
            if packet.payload and self._chance.random() < self.damage:
                self.is_trusting = False
                data = mutated(self._chance, (b"\0" + packet.payload,))[1:]
                self._write(Packet(data, packet.is_text, packet.channel))
            else:
                self._write(packet)
                if self.kind == "nq" and self._chance.random() < _DOUBLED:
                    self._write(packet)

    def _write(self, packet: Packet) -> None:
        if self.kind == "mqtt-rpc":
            if self._life is not None and self._life.broker is not None:
                self._count()
                self._life.broker.deliver(packet.channel, packet.payload)
        elif self.link is not None:
            self._count()
            self.link.write(self.link.frame(packet))

    # HTTP, for NQ.

    async def post(self, life: SimulatedHub, wait: float) -> None:
        """Say what there is to say in a POST, and hear what is due."""
        assert isinstance(self.talk, NqConversation)
        packets = self.talk.take_packets()
        body = packets[0].payload if packets else b"[]"
        self._count()
        query = f"wait={wait:g}" if wait else ""
        token = TOKENS.get(self.identity, "")
        answer: Response = await life.post(self.remote, token, self.talk.assigned_peer_id, body, query)
        if answer.status == 200:
            self.talk.assigned_peer_id = (answer.headers or {}).get("NQ-Peer", self.talk.assigned_peer_id)
            self._hear(self.talk.receive(Packet(answer.body), now()))
