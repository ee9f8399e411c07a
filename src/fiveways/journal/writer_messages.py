"""Messages between a hub and its writer process."""

from collections.abc import Iterator
from math import inf
from typing import BinaryIO, Final

import msgspec

from fiveways.journal.frame_buffer import FrameBatch

UNLIMITED: Final = -1
_LENGTH: Final = 4
_encoder: Final = msgspec.msgpack.Encoder()


class SegmentRules(msgspec.Struct, frozen=True):
    """Flush interval, rotation and retention of segments."""

    flush_interval: float = 0.1
    """Maximum seconds until a recorded frame is on disk."""
    segment_bytes: int = 64 << 20
    segment_age: float = 60.0
    keep_bytes: int = 10 << 30
    keep_days: float = 30.0


class WriterConfig(msgspec.Struct, frozen=True, tag="orders", array_like=True):
    """The first message to the process: the configuration of the run."""

    directory: str
    node: str
    run: str
    redact: tuple[str, ...]
    """Names of secrets."""
    patterns: tuple[str, ...] = ()
    """Regular expressions of secrets in texts."""
    max_payload_bytes: int = UNLIMITED
    """Maximum bytes of each payload to record."""
    rules: SegmentRules = SegmentRules()
    group: str = ""
    """A group that may read the files besides their owner."""
    clock_jump: float = inf
    """Clock jump in seconds that suspends the deletion of segments by age."""
    is_deletion_held: bool = False
    """Deletion by age is suspended, because the clock may be wrong."""


class DeletionHold(msgspec.Struct, frozen=True, tag="retention", array_like=True):
    """Suspends or resumes the deletion of segments by age."""

    is_deletion_held: bool


class WriteProgress(msgspec.Struct, frozen=True, tag="done", array_like=True):
    """Numbers of written and lost records."""

    written: int
    lost: int
    removed: int = 0
    """Lost records that had been on disk."""


class LogMessage(msgspec.Struct, frozen=True, tag="told", array_like=True):
    """A line for the log of the hub."""

    level: int
    text: str


def pack(message: WriterConfig | FrameBatch | DeletionHold | WriteProgress | LogMessage) -> bytearray:
    """Return an encoded message with a length prefix."""
    buffer = bytearray(_LENGTH)
    _encoder.encode_into(message, buffer, _LENGTH)
    buffer[:_LENGTH] = (len(buffer) - _LENGTH).to_bytes(_LENGTH, "big")
    return buffer


def unpack(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the complete messages in a buffer, and the remaining bytes."""
    messages, start = [], 0
    while len(data) - start >= _LENGTH:
        end = start + _LENGTH + int.from_bytes(data[start : start + _LENGTH], "big")
        if end > len(data):
            break
        messages.append(data[start + _LENGTH : end])
        start = end
    return messages, data[start:]


def read_messages(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the messages of a stream to its end; an incomplete message is ignored."""
    while len(prefix := stream.read(_LENGTH)) == _LENGTH:
        size = int.from_bytes(prefix, "big")
        if len(data := stream.read(size)) < size:
            return
        yield data
