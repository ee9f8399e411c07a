"""Two conversations of one protocol, connected to each other."""

from collections.abc import Mapping

from fiveways.model import messages as hub
from fiveways.model.messages import HubMessage
from fiveways.protocols.base import Conversation, ProtocolSpec, Role
from tests.support import conversations

QUIET = (hub.Accepted, hub.Acknowledged)
"""Hub messages about reliability, which most tests ignore."""


OPTIONS: dict[str, Mapping[str, object]] = {
    "mqtt-rpc": {"serve": lambda _topic, method: "server" if method == "count" else "unary"},
}
"""The options of both ends: on a shared broker the served topics and the streaming methods."""


class Pair:
    """A client and a server after their handshake. Time stands still unless a test changes it."""

    def __init__(self, spec: ProtocolSpec, limits: Mapping[str, object] | None = None) -> None:
        self.spec = spec
        self.now = 0.0
        self.ends: dict[Role, Conversation] = {
            role: conversations.create_conversation(spec, role, limits, OPTIONS.get(spec.name)) for role in Role
        }
        self.received: dict[Role, list[HubMessage]] = {role: [] for role in Role}
        if hub.Hello in spec.sendable_messages:
            self.open()

    def open(self) -> None:
        self.send(Role.CLIENT, hub.Hello())
        self.send(Role.SERVER, hub.Welcome())
        for role in Role:
            self.received[role].clear()

    def send(self, role: Role, message: HubMessage) -> list[HubMessage]:
        """Send a message from one end and return the messages received at the other."""
        self.ends[role].send(message, self.now)
        self.deliver()
        return self.take_received(other(role))

    def deliver(self) -> None:
        """Deliver packets until neither end has any."""
        moved = True
        while moved:
            moved = False
            for role, end in self.ends.items():
                for packet in end.take_packets():
                    moved = True
                    self.received[other(role)] += self.ends[other(role)].receive(packet, self.now)
            for end in self.ends.values():
                assert end.error is None, end.error

    def take_received(self, role: Role) -> list[HubMessage]:
        """Return the messages that an end has received since the last call."""
        received = [message for message in self.received[role] if not isinstance(message, QUIET)]
        self.received[role].clear()
        return received

    def request(self, role: Role, message: HubMessage) -> HubMessage:
        """Send a request from one end.

        The other receives exactly one message and, if the protocol needs it, accepts it.
        """
        (received,) = self.send(role, message)
        call_id = getattr(received, "id", None)
        if self.spec.name == "nq" and call_id is not None:
            self.send(other(role), hub.Accepted(call_id))
        return received

    def respond(self, role: Role, message: HubMessage) -> HubMessage:
        """Send a response from the end `role`; the other end receives exactly one message."""
        (received,) = self.send(role, message)
        return received


def other(role: Role) -> Role:
    return Role.CLIENT if role is Role.SERVER else Role.SERVER
