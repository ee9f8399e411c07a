"""How many of the open requests behind a broker one topic and one device may have.

MQTT does not say who published a message. A device is known by the upper half of its correlation ids, if it takes
the same for all its requests. Requests of devices that are not known share what one device may have on their topic.
The pools of `hub.shares` would do, but two of them take 1.3 us for each call, and a conversation 4 us for all else.
"""

from typing import Final

import msgspec

_DEVICE_SHIFT: Final = 32
"""The lower bits of a correlation id number the requests of one device."""
_MIN_DEVICES: Final = 8192
"""Devices that are known at least: the last that sent a request."""
_MAX_TOPICS: Final = 1024
"""Topics without open requests are forgotten when there are more than that."""


class Share(msgspec.Struct):
    """The share of one device, of all devices on one topic, or of all unknown devices."""

    name: str
    limit: int
    parent: "Share | None" = None
    """A share of which this is a part."""
    open: int = 0


class _TopicShares(msgspec.Struct):
    """A topic."""

    devices: Share
    """The share of all devices there."""
    unknown_devices: Share
    """The share of unknown devices there."""


class RequestShares:
    """Counts the requests from behind a broker that are open. Fulfils `mqtt_rpc.bridge.Shares`."""

    def __init__(self, limit: int, share: float) -> None:
        """Make it; a topic may have this part of the limit, and a device this part of that."""
        self._of_topic, self._of_device = max(1, int(limit * share)), max(1, int(limit * share * share))
        self._unknown = Share("unknown devices", self._of_topic)
        self._topics: dict[str, _TopicShares] = {}
        self._recent_devices: dict[int, Share] = {}
        """By prefix, in two generations."""
        self._older_devices: dict[int, Share] = {}

    def admit(self, number: int, topic: str) -> Share | str:
        """Count a request of this id and return the share of its device, or say which share is used up."""
        place = self._topics.get(topic)
        if place is None:
            place = self._add_topic(topic)
        device = self._recent_devices.get(number >> _DEVICE_SHIFT)
        if device is None:
            device = self._find_device(number >> _DEVICE_SHIFT, place)
        all_there, whole = place.devices, device.parent
        if device.open >= device.limit or all_there.open >= all_there.limit:
            return _used_up_text(device if device.open >= device.limit else all_there)
        if whole is not None:
            if whole.open >= whole.limit:
                return _used_up_text(whole)
            whole.open += 1
        device.open += 1
        all_there.open += 1
        return device

    def release(self, device: Share, topic: str) -> None:
        """Give back what `admit` counted."""
        device.open -= 1
        self._topics[topic].devices.open -= 1
        if device.parent is not None:
            device.parent.open -= 1

    def _add_topic(self, topic: str) -> _TopicShares:
        if len(self._topics) >= _MAX_TOPICS:
            self._topics = {name: place for name, place in self._topics.items() if place.devices.open}
        unknown = Share(f"unknown devices on {topic}", self._of_device, self._unknown)
        place = self._topics[topic] = _TopicShares(Share(f"the topic {topic}", self._of_topic), unknown)
        return place

    def _find_device(self, prefix: int, place: _TopicShares) -> Share:
        """Return the share of the device that sent requests with this prefix before, or that of unknown devices."""
        if not prefix:
            return place.unknown_devices  # from callers that count from 1
        device = self._older_devices.get(prefix)
        if len(self._recent_devices) >= _MIN_DEVICES:
            # Devices with open requests stay, so that these count when the device is back.
            busy = {each: share for each, share in self._older_devices.items() if share.open}
            self._older_devices, self._recent_devices = self._recent_devices, busy
        self._recent_devices[prefix] = device or Share(f"device {prefix:08x}", self._of_device)
        return device or place.unknown_devices


def _used_up_text(share: Share) -> str:
    return f"the share of {share.limit} open calls for {share.name} is used up"


def share_options(limit: int, share: float) -> dict[str, object]:
    """Return the options by which a conversation divides its limit of open requests, in both directions."""
    return {"shares": RequestShares(limit, share), "max_per_topic": max(1, int(limit * share))}
