"""The clients of the hub fuzzer: real conversations of each protocol, whose frames may be damaged."""

import hmac
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from fiveways.errors import FivewaysError, LocalProtocolError
from fiveways.model import messages as msgs
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
from fuzz.mutation import mutate
from fuzz.virtual_time import now

PATHS: Final = {"umq": "/umq", "umq36": "/umq36", "lrpm-json": "/lrpm", "lrpm-cbor": "/lrpm", "nq": "/nq"}
KINDS: Final = (*PATHS, "mqtt-rpc")
_TOPICS: Final = ("/alpha", "/beta", "/hub", "/callback", "/Meter/Read", "sensors/a/heat", "fiveways/hubs/x", "/none")
_DUPLICATED: Final = 0.05
"""Fraction of NQ frames that are sent twice, which must make no difference."""
_MAX_REMEMBERED: Final = 64
"""Limit of the requests and ids that a client remembers."""


class Client:
    """One peer. Fulfils `transports.base.Receiver`.

    All clients share `tokens` and `peers`; `count` is called for each frame to the hub.
    """

    def __init__(self, number: int, kind: str, tokens: list[str], peers: list[str], count: Callable[[], None]) -> None:
        self.number, self.kind, self._count = number, kind, count
        self.spec = registry.load(kind)
        self.identity = ("", "", "ada", "bob")[number % 4]
        self.damage = 0.0
        self.is_undamaged = True
        """Whether all its frames were intact: then every accepted request must be answered."""
        self.link: MemoryLink | None = None
        self.accepted: set[str] = set()
        """Requests that the hub accepted and has not answered."""
        self._answered: set[str] = set()
        self._cancelled: set[str] = set()
        self._tokens, self._peers = tokens, peers
        self._received_requests: list[msgs.HubMessage] = []
        self._announced: list[str] = []
        """Attachments that were announced and not sent."""
        self._open: list[str] = []
        self._callbacks: set[str] = set()
        self._ids = 0
        self._session = ""
        self._hub: SimulatedHub | None = None
        self._random = Random(number)
        self._begin()

    @property
    def remote(self) -> str:
        """The address of the client; some clients share one."""
        return f"10.0.0.{self.number % 3}:{4000 + self.number}"

    def _begin(self) -> None:
        random = Random(self.number)
        self.conversation: Conversation = self.spec.create_conversation(
            ConversationSetup(f"c{self.number}", Role.CLIENT, random, Limits(), None)
        )

    # Links.

    def connect(self, hub: SimulatedHub) -> None:
        """Connect if there is no connection."""
        if self._hub is not hub:
            self._hub, self.link = hub, None
        if self.link is not None:
            return
        if self.kind == "mqtt-rpc":
            return
        is_nq = isinstance(self.conversation, NqConversation)
        peer = self.conversation.assigned_peer_id if isinstance(self.conversation, NqConversation) else ""
        token = TOKENS.get(self.identity, "") if is_nq or self.number % 8 < 4 else ""
        self.link = link = hub.link(PATHS[self.kind], self.remote, token, peer)
        link.attach(self)
        if isinstance(self.conversation, NqConversation):
            self.conversation.reconnect(now())
            self.flush()
            return
        self._begin()
        for queue in (self._received_requests, self._announced, self._open):
            queue.clear()
        self.send(self._hello(with_token=not token))

    def _hello(self, *, with_token: bool) -> msgs.HubMessage:
        token = TOKENS.get(self.identity, "") if with_token else ""
        if not token:
            return msgs.Hello()
        if self.spec.supports_challenge and self.identity == "ada":
            return msgs.Hello(Value({"identity": "ada"}))
        return msgs.Hello(Value({"token": token}) if self.spec.supports_challenge else Text(token))

    def cut(self) -> None:
        """Lose the connection."""
        if self.link is not None:
            self.link.abort()
            self.link = None

    def leave(self) -> None:
        """Close the session and the connection."""
        if self.link is not None:
            with suppress(LocalProtocolError):
                self.conversation.send(msgs.Goodbye("bye"), now())
            self.flush()
            self.link.close()
            self.link = None

    def pause(self, *, is_paused: bool) -> None:
        """Pause or resume reading."""
        if self.link is not None:
            (self.link.pause_reading if is_paused else self.link.resume_reading)()

    # Calls from the link.

    def received(self, packet: Packet) -> None:
        """Handle a packet of the hub."""
        self._handle(self.conversation.receive(packet, now()))
        self.flush()

    def progressed(self, size: int) -> bool:
        """Accept the progress of a large message; there is none here."""
        return True

    def writable(self) -> None:
        """Do nothing: no output is queued here."""

    def lost(self, _reason: str) -> None:
        """Handle the end of the connection."""
        if self.link is not None and self.link._is_gone:
            self.link = None

    def wake(self) -> None:
        """Run the timers of the conversation that are due."""
        deadline = self.conversation.deadline()
        if deadline is not None and deadline <= now():
            self._handle(self.conversation.wake(now()))
            self.flush()

    def receive_publication(self, topic: str, payload: bytes) -> None:
        """Handle a publication of the hub at the broker."""
        self._handle(self.conversation.receive(Packet(payload, False, topic), now()))
        self.flush()

    def _handle(self, messages: Sequence[msgs.HubMessage]) -> None:
        for message in messages:
            match message:
                case msgs.Call() | msgs.Discover():
                    self._received_requests = [*self._received_requests[-_MAX_REMEMBERED:], message]
                case msgs.Challenge():
                    self._prove(message)
                case msgs.Welcome():
                    self._handle_welcome(message)
                case msgs.Accepted():
                    self._handle_accepted(message.id)
                case msgs.Result() | msgs.Failure():
                    self._handle_result(message)
                case _:
                    pass

    def _prove(self, message: msgs.Challenge) -> None:
        with suppress(FivewaysError):
            match message.body.value():
                case {"nonce": str(nonce)}:
                    mac = hmac.new(SECRET.encode(), nonce.encode(errors="replace"), "sha256").hexdigest()
                    self.send(msgs.Proof(Value({"mac": mac})))

    def _handle_welcome(self, message: msgs.Welcome) -> None:
        with suppress(FivewaysError):
            match message.body.value():
                case {"session": str(session)}:
                    self._peers.append(session)

    def _handle_accepted(self, name: str) -> None:
        if name not in self._answered and name not in self._cancelled:
            self.accepted.add(name)

    def _handle_result(self, message: msgs.Result | msgs.Failure) -> None:
        if isinstance(message, msgs.Result) and not message.last:
            return
        if self.is_undamaged and self.kind == "nq":
            assert message.id not in self._answered, f"request {message.id} was answered twice"
        self._answered.add(message.id)
        self.accepted.discard(message.id)
        if isinstance(message, msgs.Result) and message.id in self._callbacks:
            with suppress(FivewaysError):
                self._tokens.append(str(message.body.value() if message.body is not None else "").lower())

    # Frames that it sends.

    def act(self, random: Random, damage: float) -> None:
        """Send random messages."""
        self.damage, self._random = damage, random
        for _ in range(random.choice((1, 1, 2, 4))):
            draw = random.random()
            if draw < 0.75:
                self.send_request(
                    hub_grammar.request(random, self._name(), self._attachments(), self._tokens, self._peers)
                )
            elif draw < 0.9:
                self.send(hub_grammar.one_way(random, self._open))
            else:
                self._attach()
        self.flush()

    def send_request(self, message: msgs.HubMessage) -> None:
        """Send a request."""
        name = str(getattr(message, "id", ""))
        self._open = [*self._open[-_MAX_REMEMBERED:], name]
        if isinstance(message, msgs.Call) and message.method == "hub.callback":
            self._callbacks.add(name)
        if isinstance(message, msgs.Call) and message.method == "app.dismiss":
            self.is_undamaged = False  # its session ends, and with it all its stored state
        self.send(message)

    def answer(self, random: Random, damage: float) -> None:
        """Answer some of the received requests."""
        self.damage, self._random = damage, random
        for _ in range(min(len(self._received_requests), random.choice((1, 2, 8)))):
            request = random.choice(self._received_requests[-8:])
            response = hub_grammar.answer(random, request, self._attachments())
            if isinstance(response, msgs.Result | msgs.Failure | msgs.Description) and getattr(response, "last", True):
                self._received_requests.remove(request)
            self.send(response)
        self._attach()
        self.flush()

    def serve(self) -> None:
        """Answer all received requests, without damage."""
        self.damage = 0.0
        requests, self._received_requests = self._received_requests, []
        for request in requests:
            self.send(msgs.Result(str(getattr(request, "id", "")), Value("done")))
        self.flush()

    def flood(self, random: Random) -> None:
        """Publish many events on one topic."""
        topic, size = hub_grammar.topic(random), random.choice((10, 3000))
        for number in range(random.choice((5, 30))):
            self.send(msgs.Publish(None, topic, Value(f"{number}" + "z" * size)))
        self.flush()

    def garble(self, random: Random) -> None:
        """Send a dialogue of the vectors, mostly damaged."""
        self.is_undamaged = False
        vectors = seeds(self.spec)
        data = random.choice(vectors) if random.random() < 0.3 else mutate(random, vectors)
        is_text, channel = not (data[:1] and data[0] & BINARY), random.choice(_TOPICS)
        for payload in data[1:].split(SPLIT)[:8]:
            self._write(Packet(payload, is_text, channel))

    def send(self, message: msgs.HubMessage) -> None:
        """Send a message if the protocol has it."""
        if isinstance(message, msgs.Cancel):
            self._cancelled.add(message.id)
            self.accepted.discard(message.id)
        with suppress(LocalProtocolError):
            self.conversation.send(message, now())

    def _name(self) -> str:
        self._ids += 1
        return f"{self.number}r{self._ids}"

    def _attachments(self) -> tuple[str, ...]:
        if self._random.random() < 0.85:
            return ()
        names = tuple(f"{self.number}a{self._ids}x{index}" for index in range(self._random.choice((1, 1, 2))))
        self._announced += names
        return names

    def _attach(self) -> None:
        while self._announced and self._random.random() < 0.7:
            name = self._announced.pop(0)
            error = "gone" if self._random.random() < 0.2 else None
            self.send(msgs.Attachment(name, b"d" * self._random.choice((0, 1, 100, 5000)), error))

    def flush(self) -> None:
        """Write the outgoing packets, some of them damaged."""
        for packet in self.conversation.take_packets():
            if packet.payload and self._random.random() < self.damage:
                self.is_undamaged = False
                data = mutate(self._random, (b"\0" + packet.payload,))[1:]
                self._write(Packet(data, packet.is_text, packet.channel))
            else:
                self._write(packet)
                if self.kind == "nq" and self._random.random() < _DUPLICATED:
                    self._write(packet)

    def _write(self, packet: Packet) -> None:
        if self.kind == "mqtt-rpc":
            if self._hub is not None and self._hub.broker is not None:
                self._count()
                self._hub.broker.deliver(packet.channel, packet.payload)
        elif self.link is not None:
            self._count()
            self.link.write(self.link.frame(packet))

    # HTTP, for NQ.

    async def post(self, hub: SimulatedHub, wait: float) -> None:
        """POST the outgoing messages and handle the response."""
        assert isinstance(self.conversation, NqConversation)
        packets = self.conversation.take_packets()
        body = packets[0].payload if packets else b"[]"
        self._count()
        query = f"wait={wait:g}" if wait else ""
        token = TOKENS.get(self.identity, "")
        answer: Response = await hub.post(self.remote, token, self.conversation.assigned_peer_id, body, query)
        if answer.status == 200:
            self.conversation.assigned_peer_id = (answer.headers or {}).get(
                "NQ-Peer", self.conversation.assigned_peer_id
            )
            self._handle(self.conversation.receive(Packet(answer.body), now()))
