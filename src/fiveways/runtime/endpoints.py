"""The paths that the hub serves, and the protocol of each peer."""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from fiveways.hub.traits import ProtocolTraits
from fiveways.model import messages
from fiveways.protocols import registry
from fiveways.protocols.base import Conversation, ConversationSetup, ProtocolSpec, Role
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path. A peer without a subprotocol speaks `text` or `binary`, depending on its first packet."""

    path: str
    text: str
    binary: str
    subprotocols: dict[str, str]
    attachments: bool = False
    """Whether binary messages are attachments, which may be large."""
    accepts_post: bool = False
    """Whether HTTP POST is served, too; its sessions are resumable."""

    def subprotocol(self, offered: str) -> str:
        """Return the first supported subprotocol of those that the client offers, else an empty string."""
        return next((name for each in offered.split(",") if (name := each.strip()) in self.subprotocols), "")

    def protocol(self, subprotocol: str, packet: Packet) -> str:
        """Return the protocol of a peer that sent this first packet."""
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
    """Creates the conversations of new peers."""

    def __init__(self, random: Random, limits: Limits, options: dict[str, dict[str, object]]) -> None:
        self._random = random
        self._limits = limits
        self._options = options

    def create(self, protocol: str, peer: str) -> tuple[ProtocolSpec, Conversation]:
        """Return the protocol's specification and a new conversation."""
        spec = registry.load(protocol)
        setup = ConversationSetup(peer, Role.SERVER, self._random, self._limits, self._options.get(protocol))
        return spec, spec.create_conversation(setup)


def protocol_traits(spec: ProtocolSpec) -> ProtocolTraits:
    """Return the traits of a protocol for the hub."""
    return ProtocolTraits(
        spec.name,
        spec.name_style,
        spec.topic_style,
        accepts_streams=messages.Part in spec.sendable_messages,
        cancels=spec.forwards_cancel,
        has_challenge=messages.Challenge in spec.sendable_messages,
        is_durable=spec.name == "nq",
        has_variables=messages.SetVariable in spec.sendable_messages,
        has_updates=messages.StopUpdates in spec.sendable_messages,
        attachments_follow=messages.Hurry in spec.sendable_messages,
        is_single_peer=spec.name != "mqtt-rpc",  # one session serves all peers behind the broker
        lists_routes=spec.name == "umq",  # `?` is a UMQ message; in other protocols only the hub answers it
    )


def list_urls(
    host: str, port: int, paths: Iterable[str] = tuple(ENDPOINTS), *, has_page: bool = True
) -> list[tuple[str, str]]:
    """Return pairs of a name and a URL for people; `has_page` if the dashboard is enabled."""
    address = f"{f'[{host}]' if ':' in host else host}:{port}"
    endpoints = [(ENDPOINTS[path], path) for path in paths]
    clients = [(f"{path[1:]}", f"{path[1:]}+ws://{address}{path}") for _, path in endpoints]
    clients += [
        (f"{path[1:]}", f"{path[1:]}+http://{address}{path}") for endpoint, path in endpoints if endpoint.accepts_post
    ]
    pages = [("page", "/")] if has_page else []
    pages += [("health", "/livez"), ("ready", "/readyz"), ("metrics", "/metrics")]
    return [*clients, *((name, f"http://{address}{path}") for name, path in pages)]
