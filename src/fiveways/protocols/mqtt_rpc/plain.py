"""The short way through a conversation: calls and answers in one piece need not become frames and messages.

Whatever is not plain about a packet, or a word, is left to the long way, as if nobody had looked at it.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError

from fiveways.errors import Malformed
from fiveways.model.failures import Reason
from fiveways.model.messages import Call, Failure, Result, Word
from fiveways.model.names import BadName
from fiveways.protocols.base import Role, Setup, Whole
from fiveways.protocols.mqtt_rpc import rpc_pb2
from fiveways.protocols.mqtt_rpc.bridge import (
    JSON_TEXT,
    MILLISECOND,
    REQUEST,
    RESPONSE,
    SECONDS,
    Codec,
    Options,
    codec_of,
    failed,
    method_of,
    milliseconds,
    target_of,
)
from fiveways.protocols.mqtt_rpc.echoes import Echoes
from fiveways.protocols.mqtt_rpc.messages import too_large
from fiveways.protocols.mqtt_rpc.streams import LATE, UNWANTED, Asking, Key, Recent, Requests, Served
from fiveways.wire.packet import Packet

Words = Sequence[Word]
NOTHING: Final[tuple[Word, ...]] = ()
_REMEMBERED: Final = 1024
_UNARY: Final = "unary"
_Request, _Response = rpc_pb2.Request, rpc_pb2.Response
_parse_request, _parse_response = _Request.FromString, _Response.FromString


@lru_cache(_REMEMBERED)
def _plain_target(method: str, spelling: str) -> tuple[str, str] | None:
    """The topic and the type of an outbound call; None for the hub's own methods, whose bodies are JSON."""
    return None if codec_of(method, _NO_CODEC) is JSON_TEXT else target_of(method, spelling)


_NO_CODEC: Final[Codec] = Options().codec


def _nowhere(_topic: str, _kind: str, _direction: str) -> None:
    """No message has a field for attachments."""


class PlainMqtt(Whole):
    """The tables of a conversation, and the short way to them."""

    def __init__(self, setup: Setup) -> None:
        limits = setup.limits
        options = msgspec.convert(setup.options or {}, Options)
        self.closed = False
        self._limits = limits
        # A hub listens to the topics that it serves; a client hears a topic because it calls somebody there.
        self._serve = options.server(setup.role is Role.SERVER)
        self._codec: Codec = options.codec
        self._field: Callable[[str, str, str], Any] = options.attached or _nowhere
        """Which field of a message holds attachments."""
        self._attaches = options.attached is not None
        self._default_timeout = options.default_timeout
        self.unsent: list[Packet] = []
        self._echoes = Echoes()
        most = options.max_remembered or 2 * limits.max_pending
        self._shares, self._most_on_topic = options.shares, options.max_per_topic or limits.max_pending
        self._requests = requests = Requests(Recent(options.duplicate_window, most), setup.random, options.shares)
        self._wake_at = inf
        """No request expires before; it may lie earlier than need be, as those that were answered leave it as it is."""
        # The same once more, so that it need not be looked for each time.
        self._open, self._served, self._asking = requests.open, requests.served, requests.asking
        self._recent, self._asked_on = requests.recent, requests.asked_on
        self._longest, self._longest_name, self._most = limits.max_text, limits.max_name, limits.max_pending
        self._takes_answers = limits.max_stream > 0

    def receive(self, packet: Packet, now: float) -> Words:
        """Take one MQTT message."""
        # MQRPC-a11: what a broker kept for newcomers was meant for others.
        if self.closed or packet.retained:
            return NOTHING
        echo = self._echoes.take(packet)
        if echo is not None:
            if echo[1] is not None:
                self._requests.expects(echo[1], now)
            return NOTHING
        words = self._hear_plain(packet, now)
        return self.hear(packet, now) if words is None else words

    def send(self, word: Word, now: float) -> None:
        """Say a word to whom it may concern on the broker."""
        if not self.closed:
            kind = type(word)
            if self._say_result(word, now) if kind is Result else kind is Call and self._say_call(word, now):  # type: ignore[arg-type]
                return
        self.say(word, now)

    @abstractmethod
    def hear(self, packet: Packet, now: float) -> Words:
        """Take the long way with what has come: by way of its frame and its message."""

    @abstractmethod
    def say(self, word: Word, now: float) -> None:
        """Take the long way with what is to be said."""

    def _decline(self, key: Key, reason: Reason, text: str, now: float) -> Words:
        """Answer a request without bothering the hub."""
        self._say(failed(Failure("", reason, text), key, self._limits), key)
        self._recent.note(key, 1, now)
        return NOTHING

    def _say(self, packet: Packet, answered: Key | None = None) -> None:
        self.unsent.append(packet)
        self._echoes.said(packet, answered)

    def _hear_plain(self, packet: Packet, now: float) -> Words | None:
        """Take a message that is plain; None, and nothing has happened, if it is not."""
        data, topic = packet.payload, packet.channel
        if len(data) > self._longest or len(topic) > self._longest_name or packet.is_text or packet.blob is not None:
            return None
        try:
            answer = _parse_response(data)
            key = answer.correlation_id, topic
            # See `parse_frame`: the marks of a Response win. To ask for a flag takes half as long as for its presence.
            if answer.HasField("error_data"):
                return None
            if answer.eos:
                return self._hear_answer(answer, key, now)
            if answer.HasField("eos"):
                return None
            asked = _parse_request(data)
        except DecodeError:
            return None
        return self._hear_call(asked, key, now) if asked.eos else None

    def _hear_answer(self, answer: rpc_pb2.Response, key: Key, now: float) -> Words | None:
        asking = self._open.get(key)
        if asking is None:
            # Most likely to somebody else's Request, which we heard too; only ours are worth more thought.
            return NOTHING if self._recent.get(key, now) == UNWANTED else None
        if type(asking) is not Asking or asking.streams or asking.word is not Call or not self._takes_answers:
            return None
        if self._attaches and self._field(key[1], asking.kind, RESPONSE) is not None:
            return None
        value = answer.body.value
        if not value and not answer.HasField("body"):
            return None
        hub_id = asking.hub_id
        try:
            body = asking.codec.from_wire(key[1], asking.kind, value, RESPONSE)
        except Malformed:
            return None
        del self._open[key]
        del self._asking[hub_id]
        topic = key[1]
        if (count := self._asked_on[topic]) > 1:
            self._asked_on[topic] = count - 1
        else:
            del self._asked_on[topic]
        self._recent.note(key, LATE, now)
        return (Result(hub_id, body),)

    def _hear_call(self, asked: rpc_pb2.Request, key: Key, now: float) -> Words | None:
        number, topic = key
        if key in self._open or self._recent.get(key, now) is not None:
            return None
        body = asked.body
        try:
            method = method_of(topic, body.type_url)
        except BadName:
            return None
        kind = method.kind
        streaming = self._serve(topic, kind)
        if streaming is None:
            self._recent.note(key, UNWANTED, now)  # it is somebody else's, and so is its answer
            return NOTHING
        if streaming != _UNARY or not method.is_usual or len(method.folded) > self._longest_name:
            return None
        if len(self._served) >= self._most or (self._attaches and self._field(topic, kind, REQUEST) is not None):
            return None
        timeout, expires_at = self._default_timeout, inf
        if told := asked.timeout:
            unit = SECONDS.get(asked.timeout_unit)
            if unit is None:
                return None
            timeout = told * unit
        try:
            arguments = self._codec.from_wire(topic, kind, body.value, REQUEST)
        except Malformed:
            return None
        share = None
        if self._shares is not None:
            share = self._shares.admit(number, topic)
            if type(share) is str:
                return self._decline(key, Reason.BUSY, share, now)
        if timeout is not None:
            expires_at = now + timeout
            self._wake_at = min(self._wake_at, expires_at)
        hub_id = f"{number}@{topic}"
        served = Served(hub_id, topic, number, method, self._codec, False, False, expires_at, share)
        self._open[key] = served
        self._served[hub_id] = served
        return (Call(hub_id, method.folded, arguments, method.spelling, (), False, timeout),)

    def _say_result(self, word: Result, now: float) -> bool:
        """Say an answer that is plain; False, and nothing has happened, if it is not."""
        hub_id, body = word.id, word.body
        served = self._served.get(hub_id)
        if served is None or body is None or served.streams or word.stream or word.attachments:
            return False
        number, topic = key = served.correlation_id, served.topic
        content = _Response()
        content.correlation_id = number
        content.body.value = served.codec.to_wire(topic, served.method.kind, body, RESPONSE)
        content.eos = True
        payload = content.SerializeToString()
        if len(payload) > self._longest:
            raise too_large(payload)
        packet = Packet(payload, False, topic)
        self.unsent.append(packet)
        self._echoes.said(packet, key)
        del self._open[key]
        del self._served[hub_id]
        if served.share is not None:
            self._shares.release(served.share, topic)
        self._recent.note(key, served.echoes + 1, now)
        return True

    def _say_call(self, word: Call, now: float) -> bool:
        """Say a call that is plain; False, and nothing has happened, if it is not."""
        hub_id, asking = word.id, self._asking
        if word.attachments or word.callback or word.stream or word.more:
            return False
        target = _plain_target(word.method, word.spelling)
        if target is None or hub_id in asking or len(asking) >= self._most:
            return False
        topic, kind = target
        open_there = self._asked_on.get(topic, 0)
        if len(topic) > self._longest_name or open_there >= self._most_on_topic:
            return False
        number = self._requests.new_number(topic)
        # From here on there is no way back: the long way would draw another number.
        content = _Request()
        content.correlation_id = number
        body = content.body
        body.type_url = kind
        body.value = self._codec.to_wire(topic, kind, word.body, REQUEST)
        content.eos = True
        told, expires_at = 0, inf
        if word.timeout is not None and (told := milliseconds(word.timeout)):
            content.timeout = told
            content.timeout_unit = MILLISECOND  # type: ignore[assignment]  # proto3 takes numbers
            # We wait as long as we tell the other side to.
            expires_at = now + told / 1000
        payload = content.SerializeToString()
        if len(payload) > self._longest:
            raise too_large(payload)
        if told:
            self._wake_at = min(self._wake_at, expires_at)
        packet = Packet(payload, False, topic)
        self.unsent.append(packet)
        self._echoes.said(packet, None)
        self._open[number, topic] = asking[hub_id] = Asking(
            hub_id, topic, number, kind, self._codec, Call, False, False, expires_at
        )
        self._asked_on[topic] = open_there + 1
        return True
