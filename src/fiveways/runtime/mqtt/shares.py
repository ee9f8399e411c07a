"""How many of the open requests behind a broker one topic and one device may have.

MQTT does not say who published a message. A device is known by the upper half of its correlation ids, if it takes
the same for all its requests. Requests of devices that are not known share what one device may have on their topic.
The pools of `hub.shares` would do, but two of them take 1.3 us for each call, and a conversation 4 us for all else.
"""

from typing import Final

import msgspec

_PREFIX: Final = 32
"""The lower bits of a correlation id number the requests of one device."""
_REMEMBERED: Final = 8192
"""Devices that are known at least: the last that sent a request."""
_MOST_PLACES: Final = 1024
"""Topics without open requests are forgotten when there are more than that."""


class Share(msgspec.Struct):
    """The share of one device, of all devices on one topic, or of all unknown devices."""

    name: str
    most: int
    whole: "Share | None" = None
    """A share of which this is a part."""
    open: int = 0


class _Place(msgspec.Struct):
    """A topic."""

    share: Share
    """The share of all devices there."""
    unknown: Share
    """The share of unknown devices there."""


class RequestShares:
    """Counts the requests from behind a broker that are open. Fulfils `mqtt_rpc.bridge.Shares`."""

    def __init__(self, limit: int, share: float) -> None:
        """Make it; a topic may have this part of the limit, and a device this part of that."""
        self._of_topic, self._of_device = max(1, int(limit * share)), max(1, int(limit * share * share))
        self._unknown = Share("unknown devices", self._of_topic)
        self._places: dict[str, _Place] = {}
        self._younger: dict[int, Share] = {}
        """By prefix, in two generations."""
        self._elder: dict[int, Share] = {}

    def admit(self, number: int, topic: str) -> Share | str:
        """Count a request of this id and return the share of its device, or say which share is used up."""
        place = self._places.get(topic)
        if place is None:
            place = self._new_place(topic)
        device = self._younger.get(number >> _PREFIX)
        if device is None:
            device = self._look_up(number >> _PREFIX, place)
        all_there, whole = place.share, device.whole
        if device.open >= device.most or all_there.open >= all_there.most:
            return _used_up(device if device.open >= device.most else all_there)
        if whole is not None:
            if whole.open >= whole.most:
                return _used_up(whole)
            whole.open += 1
        device.open += 1
        all_there.open += 1
        return device

    def release(self, device: Share, topic: str) -> None:
        """Give back what `admit` counted."""
        device.open -= 1
        self._places[topic].share.open -= 1
        if device.whole is not None:
            device.whole.open -= 1

    def _new_place(self, topic: str) -> _Place:
        if len(self._places) >= _MOST_PLACES:
            self._places = {name: place for name, place in self._places.items() if place.share.open}
        unknown = Share(f"unknown devices on {topic}", self._of_device, self._unknown)
        place = self._places[topic] = _Place(Share(f"the topic {topic}", self._of_topic), unknown)
        return place

    def _look_up(self, prefix: int, place: _Place) -> Share:
        """Return the share of the device that sent requests with this prefix before, or that of unknown devices."""
        if not prefix:
            return place.unknown  # from callers that count from 1
        device = self._elder.get(prefix)
        if len(self._younger) >= _REMEMBERED:
            # Devices with open requests stay, so that these count when the device is back.
            busy = {each: share for each, share in self._elder.items() if share.open}
            self._elder, self._younger = self._younger, busy
        self._younger[prefix] = device or Share(f"device {prefix:08x}", self._of_device)
        return device or place.unknown


def _used_up(share: Share) -> str:
    return f"the share of {share.most} open calls for {share.name} is used up"


def shares_of(limit: int, share: float) -> dict[str, object]:
    """Return the options by which a conversation divides its limit of open requests, in both directions."""
    return {"shares": RequestShares(limit, share), "max_per_topic": max(1, int(limit * share))}
