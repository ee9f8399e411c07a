"""Input of the frame encoders: plan lines of one kind and protocol."""

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.model import topics
from tests.support.sample_captures.byte_columns import SMALLEST_36, base36, choose_rows, concat_rows, decimal
from tests.support.sample_captures.script import Column
from tests.support.sample_captures.vocabulary import BODIES, METHODS, NUMBER_PLACEHOLDER, TOPICS

STREAM, PROGRESS, TIMEOUT = 1, 2, 4
"""Features that a call may request; its `detail` is their sum."""
_SPREAD = 0x9E3779B97F4A7C15
_STYLES = {"umq": topics.UMQ, "umq36": topics.UMQ, "nq": topics.NQ, "mqtt-rpc": topics.MQTT}


@dataclass
class ProtocolLines:
    """Plan columns of lines of one kind in one protocol."""

    protocol: str
    columns: dict[str, Column]

    def __len__(self) -> int:
        return len(self.columns["at"])

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    @property
    def id(self) -> pa.BinaryArray:
        """The id as the protocol writes it; not for CBOR and protobuf."""
        return written_id(self.protocol, self["num"])

    @property
    def backchannel(self) -> pa.BinaryArray:
        """The key `a` of NQ."""
        return concat_rows(b"b", self["aux"])

    @property
    def method(self) -> pa.BinaryArray:
        """The method name as the protocol writes it."""
        return choose_rows([method.written(self.protocol) for method in METHODS], self["method"])

    @property
    def topic(self) -> pa.BinaryArray:
        """The topic as the protocol writes it."""
        return choose_rows(written_topics(self.protocol), self["detail"])

    @cached_property
    def digits(self) -> pa.BinaryArray:
        """The number in the body; empty if the body has none."""
        has_number = np.array([NUMBER_PLACEHOLDER in body for body in BODIES])[self["body"]]
        return pc.if_else(pa.array(has_number), decimal(self["number"]), pa.scalar(b"", pa.binary()))

    @cached_property
    def body(self) -> pa.BinaryArray:
        """The body as JSON."""
        before, _, after = zip(*(body.partition(NUMBER_PLACEHOLDER) for body in BODIES), strict=True)
        return concat_rows(choose_rows(before, self["body"]), self.digits, choose_rows(after, self["body"]))

    def quoted_topic(self) -> pa.BinaryArray:
        """Return the topic as JSON."""
        return choose_rows([json.dumps(topic) for topic in written_topics(self.protocol)], self["detail"])


@lru_cache
def written_topics(protocol: str) -> tuple[str, ...]:
    """Return all topics as a protocol writes them."""
    return tuple(topics.spell(topic, _STYLES.get(protocol, topics.LRPM)) for topic in TOPICS)


def correlation(num: Column) -> Column:
    """Return MQTT correlation ids: they look random and are unique for unique numbers."""
    return num.astype(np.uint64) * np.uint64(_SPREAD) ^ np.uint64(0x5DEECE66D)


def written_id(protocol: str, num: Column) -> pa.BinaryArray:
    """Return ids as text."""
    match protocol:
        case "umq36":
            return base36(num + SMALLEST_36)
        case "mqtt-rpc":
            return decimal(correlation(num))
        case "lrpm-json" | "lrpm-cbor":
            return decimal(num + 256)
        case _:
            return decimal(num)
