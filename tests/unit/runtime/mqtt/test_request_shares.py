"""Limits of the pending requests behind a broker: per topic, per device, and for all unknown devices."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fiveways.runtime.mqtt import request_shares as module
from fiveways.runtime.mqtt.request_shares import RequestShares, Share


def device(prefix: int, number: int) -> int:
    return prefix << 32 | number


def flood(shares: RequestShares, numbers: list[int], topic: str = "/a") -> tuple[list[Share], Counter[str]]:
    """The devices of admitted requests, and the reasons of refusals."""
    outcomes = [shares.admit(number, topic) for number in numbers]
    return (
        [each for each in outcomes if not isinstance(each, str)],
        Counter(each for each in outcomes if isinstance(each, str)),
    )


def test_device_that_uses_up_its_share_leaves_room_for_others_on_its_topic() -> None:
    shares = RequestShares(64, 0.5)
    admitted, refused = flood(shares, [device(7, number) for number in range(64)])
    # The first request came from a device that was still unknown.
    assert len(admitted) == 17
    assert refused == {"the share of 16 open calls for device 00000007 is used up": 47}
    assert len(flood(shares, [device(8, number) for number in range(10)])[0]) == 10


def test_device_that_uses_many_topics_has_no_larger_share() -> None:
    shares = RequestShares(64, 0.5)
    numbers = [device(7, number) for number in range(64)]
    assert sum(len(flood(shares, numbers, f"/{topic}")[0]) for topic in range(8)) == 17


def test_topic_has_a_share_whatever_number_of_devices_use_it() -> None:
    shares = RequestShares(64, 0.5)
    numbers = [device(prefix, number) for number in range(64) for prefix in range(1, 9)]
    admitted, refused = flood(shares, numbers)
    assert len(admitted) == 32
    assert refused["the share of 32 open calls for the topic /a is used up"]
    assert len(flood(shares, [device(1, 1000)], "/b")[0]) == 1


def test_requests_without_a_common_prefix_share_what_one_device_has() -> None:
    shares = RequestShares(64, 0.5)
    for numbers in ([device(prefix, 1) for prefix in range(1, 65)], [*range(1, 65)]):
        admitted, refused = flood(shares, numbers)
        assert len(admitted) == 16
        assert refused == {"the share of 16 open calls for unknown devices on /a is used up": 48}
        # A device is known from its second request on, even if the first was refused.
        answers = flood(shares, [device(1000, 1), device(1000, 2)])
        assert (len(answers[0]), len(answers[1])) == (1, 1)
        shares = RequestShares(64, 0.5)


def test_requests_without_a_common_prefix_cannot_fill_all_topics() -> None:
    shares = RequestShares(64, 0.5)
    flood(shares, [device(1000, 1)], "/healthy")
    for topic in range(8):
        flood(shares, [device(topic * 100 + number, 1) for number in range(1, 65)], f"/{topic}")
    assert len(flood(shares, [device(1000, 2)], "/0")[0]) == 1


def test_share_of_1_is_no_limit() -> None:
    shares = RequestShares(64, 1.0)
    assert len(flood(shares, [device(7, number) for number in range(64)])[0]) == 64


def test_device_with_open_requests_is_not_forgotten() -> None:
    shares = RequestShares(1 << 20, 0.5)
    flood(shares, [device(7, 1)])
    (share,) = flood(shares, [device(7, 2)])[0]
    for prefix in range(100, 100 + 4 * module._MIN_DEVICES):
        shares.admit(device(prefix, 1), "/b")
    assert len(shares._recent_devices) + len(shares._older_devices) <= 2 * module._MIN_DEVICES
    assert shares.admit(device(7, 3), "/a") is share
    assert share.open == 2


def test_topics_without_open_requests_are_forgotten() -> None:
    shares = RequestShares(64, 0.5)
    flood(shares, [device(7, 1)], "/open")
    for number in range(3 * module._MAX_TOPICS):
        (share,) = flood(shares, [device(8, number)], f"/{number}")[0]
        shares.release(share, f"/{number}")
    assert len(shares._topics) <= module._MAX_TOPICS
    assert shares._topics["/open"].devices.open == 1


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.sampled_from(["/a", "/b"])), max_size=60))
def test_admitted_requests_can_be_released(steps: list[tuple[bool, int, str]]) -> None:
    shares, held = RequestShares(8, 0.5), list[tuple[Share, str]]()
    for number, (comes, prefix, topic) in enumerate(steps):
        if comes:
            share = shares.admit(device(prefix, number), topic)
            if not isinstance(share, str):
                held.append((share, topic))
        elif held:
            shares.release(*held.pop())
        assert sum(place.devices.open for place in shares._topics.values()) == len(held) <= 8
    for share, topic in held:
        shares.release(share, topic)
    shared = [share for place in shares._topics.values() for share in (place.devices, place.unknown_devices)]
    assert not any(share.open for share in (*shared, *shares._recent_devices.values(), shares._unknown))
