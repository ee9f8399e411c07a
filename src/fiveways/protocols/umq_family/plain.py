"""The short way through a UMQ conversation: plain calls and plain results, as most are, need not become messages."""

from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar, Final

import msgspec

from fiveways.errors import Malformed
from fiveways.model import messages as hub
from fiveways.model.names import BadName, NameStyle, fold
from fiveways.model.topics import BadTopic
from fiveways.protocols.builtins import PUBLISH, plain_publish
from fiveways.protocols.umq_family.conversation import OPEN
from fiveways.protocols.umq_family.link import Words
from fiveways.protocols.umq_family.updates import UpdatingUmq
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload, Text

ODD: Final = (msgspec.DecodeError, ValueError, RecursionError, Malformed, BadName, BadTopic)
"""What tells that a frame needs a closer look."""
_RESULT: Final = ord("R")
_REMEMBERED: Final = 1024


def ordinary_names(style: NameStyle) -> Callable[[str], str]:
    """How to fold a name: of the hub's own names nothing comes but `hub.publish`, and BadName of what is none."""

    @lru_cache(_REMEMBERED)
    def ordinary(name: str) -> str:
        method = fold(name, style)
        return "" if method.startswith("hub.") and method != PUBLISH else method

    return ordinary


class PlainUmq(UpdatingUmq):
    """One UMQ peer. Whatever is not plain about a frame is left to the long way, as if nobody had looked at it."""

    CALL: ClassVar[int]
    """The letter of a call."""

    def receive(self, packet: Packet, now: float) -> Words:
        """Take one frame of the peer."""
        payload = packet.payload
        if self._state is OPEN and packet.is_text and 0 < len(payload) <= self._longest:
            kind, words = payload[0], None
            try:
                if kind == _RESULT:
                    words = self._hear_result(payload.decode())
                elif kind == self.CALL and len(self._asked) < self._limits.max_pending:
                    words = self._hear_call(payload)
            except ODD:
                words = None
            if words is not None:
                return words
        return super().receive(packet, now)

    def _hear_result(self, text: str) -> Words | None:
        head, separator, payload = text.partition(self._separator)
        wire_id = head[1:]
        hub_id = self._asking.get(wire_id)
        if type(hub_id) is not str or not separator:
            return None
        del self._asking[wire_id], self._asking_by_hub_id[hub_id]
        return (hub.Result(hub_id, Text(payload)),)

    def _heard_call(self, wire_id: str, method: str, body: Payload, name: str) -> Words | None:
        """Take up a request that is a plain call, or a plain publication."""
        word: hub.Word | None
        if method == PUBLISH:
            word = plain_publish(wire_id, body, self.STYLES)
            if word is None:
                return None
        else:
            word = hub.Call(wire_id, method, body, name)
        self._asked[wire_id] = wire_id
        return (word,)

    @abstractmethod
    def _hear_call(self, payload: bytes) -> Words | None:
        """What a plain call says; None or one of ODD, and nothing has happened, if it is anything else."""
