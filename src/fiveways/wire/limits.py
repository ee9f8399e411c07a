"""Every bound on what a peer may make us hold, in one place."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds. What exceeds a bound is refused in the peer's own protocol."""

    max_text: int = 1 << 20
    """A text frame, or a binary frame that carries a message (CBOR, protobuf)."""
    max_attachment: int = 1 << 28
    """One attachment."""
    max_attachments: int = 1024
    """Binary frames that one message may announce."""
    max_expected_attachments: int = 4096
    """Binary frames that one peer may have announced and not yet sent."""
    max_name: int = 255
    """Method names, topics, variable names."""
    max_topic_depth: int = 16
    """Segments of a topic, and levels of a pattern."""
    max_id: int = 255
    """Identifiers that a peer chooses."""
    max_depth: int = 128
    """Nesting of arrays and maps in a body."""
    max_containers: int = 1 << 17
    """Arrays, maps and tags in a CBOR body. They take most of the time when it is converted for other peers."""
    max_pending: int = 4096
    """Calls of one peer that are not answered yet, in each direction."""
    max_subscriptions: int = 4096
    """Subscriptions of one peer."""
    max_variables: int = 256
    """Variables of one peer."""
    max_batch: int = 1024
    """Messages in one NQ batch."""
    max_stream: int = 1 << 20
    """Parts of one stream."""
    attachment_timeout: float = 30.0
    """Seconds without progress after which an attachment has failed."""
    min_attachment_rate: int = 1 << 14
    """Bytes a second that an attachment must have on average. After `attachment_timeout` a slower one has failed."""
    max_attachment_time: float = 600.0
    """Seconds from the announcement of an attachment until it must have come completely."""
    max_attachment_hold: float = 2.0
    """Seconds that an incomplete attachment may delay complete ones of other senders, to the same receiver.

    This is the time without progress. After it, the attachment must also have `min_attachment_rate` on average. A
    sender with a failed attachment whose bytes are still to come has no such time.
    """
    max_attachment_delay: float = 20.0
    """The longest delay, in seconds, that an incomplete attachment causes to those of other senders, at any rate.

    `calls.timeout` should be longer, so that the delayed calls are still answered.
    """
    max_frame: int = 1 << 24
    """One frame of a transport, which is held in memory: larger attachments have to come in fragments."""
    max_unauthenticated: int = 1 << 16
    """A frame or a body of HTTP before its client is authenticated, or admitted as anonymous."""
    max_unread_events: int = 1 << 20
    """Bytes that wait for a slow reader before its topics' policy strikes: skip, unsubscribe, close or block."""
    max_unread: int = 1 << 24
    """Bytes that wait for a slow reader, calls and answers included, before it is let go."""
    max_spool: int = 1 << 32
    """Bytes of large or late attachments that wait on disk, of all peers together."""
