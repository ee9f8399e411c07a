"""The fast path of an LRPM conversation in JSON: plain frames are handled without message objects."""

from typing import Final

import msgspec

from fiveways.errors import Malformed
from fiveways.model import messages as hub
from fiveways.model import topics
from fiveways.model.names import BadName
from fiveways.model.topics import BadTopic
from fiveways.protocols.lrpm.conversation import LrpmConversation
from fiveways.protocols.lrpm.conversation_base import HubMessages
from fiveways.protocols.lrpm.incoming import PUBLISH, IncomingRequest
from fiveways.protocols.lrpm.json_frames import EMPTY_META, MAX_CACHED_META, decode_call, decode_result, read_timeout
from fiveways.protocols.lrpm.states import State
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Json
from fiveways.wire.strict_json import check_numbers_and_depth

NOT_FASTPATH: Final = (msgspec.DecodeError, ValueError, RecursionError, Malformed, BadName, BadTopic)
"""Exceptions that send a frame to the general path."""
OPEN_STATE: Final = State.OKAY
"""A module constant: attribute access on an Enum class takes longer than writing a frame."""


class JsonFastPath(LrpmConversation):
    """An LRPM peer in JSON with a fast path for plain calls, results and publications without message objects.

    Frames that are not plain take the general path, without side effects before.
    """

    def receive(self, packet: Packet, now: float) -> HubMessages:
        """Handle a frame of the peer."""
        payload = packet.payload
        if (
            self._state is OPEN_STATE
            and packet.is_text
            and len(payload) <= self._limits.max_text
            and not self._hub_messages
        ):
            start, messages = payload[:4], None
            try:
                if not payload.isascii():
                    payload.decode()
                if start == b"[41,":
                    messages = self._receive_result_fast(payload)
                elif start == b"[40,":
                    messages = self._receive_call_fast(payload)
                elif start == b"[61,":
                    messages = self._receive_publish_fast(payload)
            except NOT_FASTPATH:
                messages = None
            if messages is not None:
                return messages
        return super().receive(packet, now)

    def _receive_result_fast(self, payload: bytes) -> HubMessages | None:
        frame = decode_result(payload)
        number = frame.number
        request = self._outgoing_requests.get(number)
        hub_id = request if isinstance(request, str) else None if request is None else request.simple_call_id()
        if hub_id is None or frame.meta != EMPTY_META:
            return None
        raw = bytes(frame.body)
        check_numbers_and_depth(raw, self._limits.max_depth)
        del self._outgoing_requests[number], self._outgoing_by_hub_id[hub_id]
        return (hub.Result(hub_id, Json(raw)),)

    def _receive_call_fast(self, payload: bytes) -> HubMessages | None:
        frame, requests, limits = decode_call(payload), self._incoming_requests, self._limits
        number, uri, meta, parse_procedure = frame.number, frame.uri, frame.meta, self._parse_procedure
        hub_id, target = str(number), parse_procedure(uri)
        if target.builtin or hub_id in requests or len(requests) >= limits.max_pending:
            return None
        timeout = None
        if meta != EMPTY_META:
            raw_meta = bytes(meta)
            if len(raw_meta) > MAX_CACHED_META:
                return None
            timeout = read_timeout(raw_meta)
        raw = bytes(frame.body)
        check_numbers_and_depth(raw, limits.max_depth)
        requests[hub_id] = number
        return (hub.Call(hub_id, target.method, Json(raw), uri, callback=target.callback, timeout=timeout),)

    def _receive_publish_fast(self, payload: bytes) -> HubMessages | None:
        frame, requests, limits = (
            decode_call(payload),
            self._incoming_requests,
            self._limits,
        )  # PUBLISH has the same fields
        number, uri = frame.number, frame.uri
        hub_id = str(number)
        if (
            frame.meta != EMPTY_META
            or hub_id in requests
            or len(requests) >= limits.max_pending
            or len(uri) > limits.max_name
        ):
            return None
        topic = topics.parse(uri, topics.LRPM)
        raw = bytes(frame.body)
        check_numbers_and_depth(raw, limits.max_depth)
        requests[hub_id] = IncomingRequest(number, PUBLISH, hub.Publish)
        return (hub.Publish(hub_id, topic, Json(raw)),)
