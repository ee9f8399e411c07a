"""What is served under which path, and which of its dialects a peer speaks."""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from fiveways.hub.traits import ProtocolTraits
from fiveways.model import messages as words
from fiveways.protocols import registry
from fiveways.protocols.base import Conversation, ConversationSetup, ProtocolSpec, Role
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path. A peer that names no subprotocol speaks `text` or `binary`, as its first packet shows."""

    path: str
    text: str
    binary: str
    subprotocols: dict[str, str]
    attachments: bool = False
    """Binary messages are attachments, and may be large."""
    accepts_post: bool = False
    """It is served by HTTP POST as well, and its conversations outlive their links."""

    def subprotocol(self, offered: str) -> str:
        """Return the first of those offered that we speak, or nothing: none is demanded."""
        return next((name for each in offered.split(",") if (name := each.strip()) in self.subprotocols), "")

    def protocol(self, subprotocol: str, packet: Packet) -> str:
        """Return the protocol of a peer whose first packet is there."""
        return self.subprotocols.get(subprotocol) or (self.text if packet.is_text else self.binary)


ENDPOINTS: Final = {
    endpoint.path: endpoint
    for endpoint in (
        Endpoint("/umq", "umq", "umq", {"umq.1": "umq"}, attachments=True),
        Endpoint("/umq36", "umq36", "umq36", {"umq36.1": "umq36"}, attachments=True),
        Endpoint("/lrpm", "lrpm-json", "lrpm-cbor", {"lrpm.json": "lrpm-json", "lrpm.cbor": "lrpm-cbor"}),
        Endpoint("/nq", "nq", "nq", {"nq.1": "nq"}, accepts_post=True),
    )
}


class ConversationFactory:
    """Makes the conversations of those who come in."""

    def __init__(self, random: Random, limits: Limits, options: dict[str, dict[str, object]]) -> None:
        self._random = random
        self._limits = limits
        self._options = options

    def create(self, protocol: str, peer: str) -> tuple[ProtocolSpec, Conversation]:
        """Return a new conversation, and what its protocol is."""
        spec = registry.load(protocol)
        setup = ConversationSetup(peer, Role.SERVER, self._random, self._limits, self._options.get(protocol))
        return spec, spec.create_conversation(setup)


def protocol_traits(spec: ProtocolSpec) -> ProtocolTraits:
    """Return what the hub has to know of a protocol."""
    return ProtocolTraits(
        spec.name,
        spec.name_style,
        spec.topic_style,
        accepts_streams=words.Part in spec.sendable_messages,
        cancels=spec.forwards_cancel,
        has_challenge=words.Challenge in spec.sendable_messages,
        is_durable=spec.name == "nq",
        has_variables=words.SetVariable in spec.sendable_messages,
        has_updates=words.StopUpdates in spec.sendable_messages,
        attachments_follow=words.Hurry in spec.sendable_messages,
        is_single_peer=spec.name != "mqtt-rpc",  # there, everybody behind the broker is one session
        lists_routes=spec.name == "umq",  # `?` is part of it; elsewhere only a hub answers
    )


def list_urls(
    host: str, port: int, paths: Iterable[str] = tuple(ENDPOINTS), *, has_page: bool = True
) -> list[tuple[str, str]]:
    """Return what is served where, for people; `has_page` if there is a dashboard."""
    place = f"{f'[{host}]' if ':' in host else host}:{port}"
    served = [(ENDPOINTS[path], path) for path in paths]
    clients = [(f"{path[1:]}", f"{path[1:]}+ws://{place}{path}") for _, path in served]
    clients += [
        (f"{path[1:]}", f"{path[1:]}+http://{place}{path}") for endpoint, path in served if endpoint.accepts_post
    ]
    pages = [("page", "/")] if has_page else []
    pages += [("health", "/livez"), ("ready", "/readyz"), ("metrics", "/metrics")]
    return [*clients, *((what, f"http://{place}{path}") for what, path in pages)]
