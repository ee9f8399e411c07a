"""Shares of the pending requests behind a broker, per topic and per device.

MQTT does not name the publisher of a message. A device is recognized by the upper 32 bits of its correlation ids, if it
uses the same for all requests. Unknown devices share one device's share of a topic. The pools of `hub.shares` would be
too slow: two of them take 1.3 us per call, the rest of a conversation 4 us.
"""

from typing import Final

import msgspec

_DEVICE_SHIFT: Final = 32
"""The lower bits of a correlation id number the requests of one device."""
_MIN_DEVICES: Final = 8192
"""Minimum number of known devices: those with the latest requests."""
_MAX_TOPICS: Final = 1024
"""Above this number, topics without pending requests are forgotten."""


class Share(msgspec.Struct):
    """The share of one device, of all devices on one topic, or of all unknown devices."""

    name: str
    limit: int
    parent: "Share | None" = None
    """The share that contains this one."""
    open: int = 0


class _TopicShares(msgspec.Struct):
    """The shares of one topic."""

    devices: Share
    """The share of all devices."""
    unknown_devices: Share
    """The share of unknown devices."""


class RequestShares:
    """Counts the pending requests behind a broker. Implements `mqtt_rpc.bridge.Shares`."""

    def __init__(self, limit: int, share: float) -> None:
        """A topic may have the fraction `share` of the limit, a device the same fraction of that."""
        self._topic_limit, self._device_limit = max(1, int(limit * share)), max(1, int(limit * share * share))
        self._unknown = Share("unknown devices", self._topic_limit)
        self._topics: dict[str, _TopicShares] = {}
        self._recent_devices: dict[int, Share] = {}
        """By prefix, in two generations."""
        self._older_devices: dict[int, Share] = {}

    def admit(self, correlation_id: int, topic: str) -> Share | str:
        """Count a request and return the share of its device, or the text of the refusal if a share is used up."""
        topic_shares = self._topics.get(topic)
        if topic_shares is None:
            topic_shares = self._add_topic(topic)
        device = self._recent_devices.get(correlation_id >> _DEVICE_SHIFT)
        if device is None:
            device = self._find_device(correlation_id >> _DEVICE_SHIFT, topic_shares)
        topic_share, parent = topic_shares.devices, device.parent
        if device.open >= device.limit or topic_share.open >= topic_share.limit:
            return _used_up_text(device if device.open >= device.limit else topic_share)
        if parent is not None:
            if parent.open >= parent.limit:
                return _used_up_text(parent)
            parent.open += 1
        device.open += 1
        topic_share.open += 1
        return device

    def release(self, device: Share, topic: str) -> None:
        """Return a share that `admit` counted."""
        device.open -= 1
        self._topics[topic].devices.open -= 1
        if device.parent is not None:
            device.parent.open -= 1

    def _add_topic(self, topic: str) -> _TopicShares:
        if len(self._topics) >= _MAX_TOPICS:
            self._topics = {
                name: topic_shares for name, topic_shares in self._topics.items() if topic_shares.devices.open
            }
        unknown = Share(f"unknown devices on {topic}", self._device_limit, self._unknown)
        topic_shares = self._topics[topic] = _TopicShares(Share(f"the topic {topic}", self._topic_limit), unknown)
        return topic_shares

    def _find_device(self, prefix: int, topic_shares: _TopicShares) -> Share:
        """Return the share of a known device, or that of unknown devices."""
        if not prefix:
            return topic_shares.unknown_devices  # callers that count from 1
        device = self._older_devices.get(prefix)
        if len(self._recent_devices) >= _MIN_DEVICES:
            # Devices with pending requests stay, because their requests must count when they return.
            busy = {known: share for known, share in self._older_devices.items() if share.open}
            self._older_devices, self._recent_devices = self._recent_devices, busy
        self._recent_devices[prefix] = device or Share(f"device {prefix:08x}", self._device_limit)
        return device or topic_shares.unknown_devices


def _used_up_text(share: Share) -> str:
    return f"the share of {share.limit} open calls for {share.name} is used up"


def share_options(limit: int, share: float) -> dict[str, object]:
    """Return the options by which a conversation limits its pending requests, in both directions."""
    return {"shares": RequestShares(limit, share), "max_per_topic": max(1, int(limit * share))}
