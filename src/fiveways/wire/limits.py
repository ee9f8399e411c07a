"""Limits for the resources of one peer, except those of the hub as a whole."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for the resources of a peer. Sizes are in bytes, times in seconds."""

    max_text: int = 1 << 20
    """Maximum size of a text frame, or of a binary frame with a message (CBOR, protobuf)."""
    max_attachment: int = 1 << 28
    """Maximum size of one attachment."""
    max_attachments: int = 1024
    """Maximum number of binary frames that one message may announce."""
    max_expected_attachments: int = 4096
    """Maximum number of binary frames that one peer may have announced and not yet sent."""
    max_name: int = 255
    """Maximum size of a method name, topic or variable name."""
    max_topic_depth: int = 16
    """Maximum number of segments of a topic, and of levels of a pattern."""
    max_id: int = 255
    """Maximum size of an identifier chosen by a peer."""
    max_depth: int = 128
    """Maximum nesting depth of arrays and maps in a body."""
    max_containers: int = 1 << 17
    """Maximum number of arrays, maps and tags in a CBOR body. They take most of the time of its conversion."""
    max_pending: int = 4096
    """Maximum number of pending calls of one peer, in each direction."""
    max_subscriptions: int = 4096
    """Maximum number of subscriptions of one peer."""
    max_variables: int = 256
    """Maximum number of variables of one peer."""
    max_batch: int = 1024
    """Maximum number of messages in one NQ batch."""
    max_stream: int = 1 << 20
    """Maximum number of parts of one stream."""
    attachment_timeout: float = 30.0
    """Seconds without progress after which an attachment fails."""
    min_attachment_rate: int = 1 << 14
    """Minimum average rate of an attachment in bytes per second. After `attachment_timeout` a slower one fails."""
    max_attachment_time: float = 600.0
    """Maximum seconds from the announcement of an attachment to its end."""
    max_attachment_hold: float = 2.0
    """Seconds without progress after which an incomplete attachment fails if it delays complete ones of other senders.

    This applies to attachments for the same receiver. After this time the attachment must also have
    `min_attachment_rate` on average. A sender gets no such time before the end of its failed attachment.
    """
    max_attachment_delay: float = 20.0
    """Maximum seconds for which an incomplete attachment may delay those of other senders, at any rate.

    Set `calls.timeout` to more, so that the delayed calls are still answered.
    """
    max_frame: int = 1 << 24
    """Maximum size of one transport frame, which is held in memory. Larger attachments must be fragmented."""
    max_unauthenticated: int = 1 << 16
    """Maximum size of a frame or an HTTP body before the peer is authenticated or admitted as anonymous."""
    max_unread_events: int = 1 << 20
    """Outbox bytes of a slow consumer above which the overflow policy applies: skip, unsubscribe, close or block."""
    max_unread: int = 1 << 24
    """Outbox bytes of a slow consumer, calls and responses included, above which its session is closed."""
    max_spool: int = 1 << 32
    """Maximum bytes of large or delayed attachments on disk, of all peers together."""
