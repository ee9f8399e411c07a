"""What passes between a hub and the process that writes its journal."""

from collections.abc import Iterator
from math import inf
from typing import BinaryIO, Final

import msgspec

from fiveways.journal.frame_buffer import FrameBatch

UNLIMITED: Final = -1
_LENGTH: Final = 4
_encoder: Final = msgspec.msgpack.Encoder()


class SegmentRules(msgspec.Struct, frozen=True):
    """When records are written, when a segment is closed, how long it is kept."""

    flush_interval: float = 0.1
    """Seconds after which what was noted is on disk."""
    segment_bytes: int = 64 << 20
    segment_age: float = 60.0
    keep_bytes: int = 10 << 30
    keep_days: float = 30.0


class WriterConfig(msgspec.Struct, frozen=True, tag="orders", array_like=True):
    """The first word to the process: what is to be written where."""

    directory: str
    node: str
    run: str
    redact: tuple[str, ...]
    """Names under which secrets stand."""
    patterns: tuple[str, ...] = ()
    """Regular expressions of secrets in texts."""
    max_payload_bytes: int = UNLIMITED
    """Bytes of each payload that are written."""
    rules: SegmentRules = SegmentRules()
    group: str = ""
    """The group that may read the files, besides their owner."""
    clock_jump: float = inf
    """Seconds that the clock may jump before no segment is deleted for its age any more."""
    is_deletion_held: bool = False
    """No segment is deleted for its age: the clock may be wrong."""


class DeletionHold(msgspec.Struct, frozen=True, tag="retention", array_like=True):
    """Whether segments are deleted for their age from now on."""

    is_deletion_held: bool


class WriteProgress(msgspec.Struct, frozen=True, tag="done", array_like=True):
    """How many records are on disk, and how many could not be written."""

    written: int
    lost: int
    removed: int = 0
    """How many of those that are lost were on disk."""


class LogMessage(msgspec.Struct, frozen=True, tag="told", array_like=True):
    """A line for the hub's log."""

    level: int
    text: str


def pack(message: WriterConfig | FrameBatch | DeletionHold | WriteProgress | LogMessage) -> bytearray:
    """Return a message with its length before it."""
    buffer = bytearray(_LENGTH)
    _encoder.encode_into(message, buffer, _LENGTH)
    buffer[:_LENGTH] = (len(buffer) - _LENGTH).to_bytes(_LENGTH, "big")
    return buffer


def unpack(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the messages in some bytes, and what is left: the beginning of one."""
    found, start = [], 0
    while len(data) - start >= _LENGTH:
        end = start + _LENGTH + int.from_bytes(data[start : start + _LENGTH], "big")
        if end > len(data):
            break
        found.append(data[start + _LENGTH : end])
        start = end
    return found, data[start:]


def read_messages(stream: BinaryIO) -> Iterator[bytes]:
    """Return the messages of a stream, to its end; half a message is none."""
    while len(head := stream.read(_LENGTH)) == _LENGTH:
        size = int.from_bytes(head, "big")
        if len(data := stream.read(size)) < size:
            return
        yield data
