"""The fast path of a UMQ conversation: plain calls and results are handled without message objects."""

from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar, Final

import msgspec

from fiveways.errors import Malformed
from fiveways.model import messages as hub
from fiveways.model.names import BadName, NameStyle, fold
from fiveways.model.topics import BadTopic
from fiveways.protocols.builtin_methods import PUBLISH, fastpath_publish
from fiveways.protocols.umq_family.conversation import OPEN
from fiveways.protocols.umq_family.conversation_base import HubMessages
from fiveways.protocols.umq_family.unsolicited_updates import UmqUnsolicitedUpdates
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload, Text

NOT_FASTPATH: Final = (msgspec.DecodeError, ValueError, RecursionError, Malformed, BadName, BadTopic)
"""Exceptions that send a frame to the general path."""
_RESULT: Final = ord("R")
_CACHE_SIZE: Final = 1024


def fastpath_name_folder(style: NameStyle) -> Callable[[str], str]:
    """Return a function that folds names. It returns an empty string for hub methods except `hub.publish`.

    The function raises BadName for an invalid name.
    """

    @lru_cache(_CACHE_SIZE)
    def fold_name(name: str) -> str:
        method = fold(name, style)
        return "" if method.startswith("hub.") and method != PUBLISH else method

    return fold_name


class UmqFastPath(UmqUnsolicitedUpdates):
    """A UMQ peer with a fast path. Frames that are not plain take the general path, without side effects before."""

    CALL_KIND: ClassVar[int]
    """The frame type of a call."""

    def receive(self, packet: Packet, now: float) -> HubMessages:
        """Handle a frame of the peer."""
        payload = packet.payload
        if self._state is OPEN and packet.is_text and 0 < len(payload) <= self._max_text:
            kind, messages = payload[0], None
            try:
                if kind == _RESULT:
                    messages = self._receive_result_fast(payload.decode())
                elif kind == self.CALL_KIND and len(self._incoming_requests) < self._limits.max_pending:
                    messages = self._receive_call_fast(payload)
            except NOT_FASTPATH:
                messages = None
            if messages is not None:
                return messages
        return super().receive(packet, now)

    def _receive_result_fast(self, text: str) -> HubMessages | None:
        head, separator, payload = text.partition(self._separator)
        wire_id = head[1:]
        hub_id = self._outgoing_requests.get(wire_id)
        if type(hub_id) is not str or not separator:
            return None
        del self._outgoing_requests[wire_id], self._outgoing_by_hub_id[hub_id]
        return (hub.Result(hub_id, Text(payload)),)

    def _accept_call_fast(self, wire_id: str, method: str, body: Payload, name: str) -> HubMessages | None:
        """Open a request that is a plain call or publication."""
        message: hub.HubMessage | None
        if method == PUBLISH:
            message = fastpath_publish(wire_id, body, self.STYLES)
            if message is None:
                return None
        else:
            message = hub.Call(wire_id, method, body, name)
        self._incoming_requests[wire_id] = wire_id
        return (message,)

    @abstractmethod
    def _receive_call_fast(self, payload: bytes) -> HubMessages | None:
        """Parse a plain call. Any other call returns None or raises one of NOT_FASTPATH, without side effects."""
