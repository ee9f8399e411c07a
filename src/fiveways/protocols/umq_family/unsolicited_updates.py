"""Updates of the peer on topic ids without a subscription of ours, for applications in the hub."""

from collections.abc import Mapping
from typing import ClassVar

from fiveways.model import messages as hub
from fiveways.protocols.base import Role
from fiveways.protocols.umq_family import messages as umq
from fiveways.protocols.umq_family.conversation import UmqConversation
from fiveways.protocols.umq_family.conversation_base import AttachmentNames, HubMessages, Receiver, Sender
from fiveways.wire.payload import Text


class UmqUnsolicitedUpdates(UmqConversation):
    """A UMQ peer. A hub decides whether it wants such an update; a client refuses it."""

    def _on_update(self, message: umq.TopicUpdate, names: AttachmentNames, now: float) -> HubMessages:
        if self.role is Role.CLIENT or self._own_subscriptions.get(message.id) is not None:
            return super()._on_update(message, names, now)
        return (hub.Update(message.id, Text(message.payload), names),)

    def _on_topic_close(self, message: umq.TopicClose, names: AttachmentNames, now: float) -> HubMessages:
        if self.role is Role.CLIENT or self._own_subscriptions.get(message.id) is not None:
            return super()._on_topic_close(message, names, now)
        return (hub.UpdatesClosed(message.id),)

    def _send_stop_updates(self, message: hub.StopUpdates) -> None:
        self._write_message(umq.Unsubscribe(message.name))

    RECEIVERS: ClassVar[Mapping[type, Receiver]] = {
        **UmqConversation.RECEIVERS,
        umq.TopicUpdate: _on_update,
        umq.TopicClose: _on_topic_close,
    }
    SENDERS: ClassVar[Mapping[type[hub.HubMessage], Sender]] = {
        **UmqConversation.SENDERS,
        hub.StopUpdates: _send_stop_updates,
    }
