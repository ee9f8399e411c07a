"""Ids of resumable sessions."""

from random import Random

import pytest

from fiveways.runtime.peer_ids import PeerIds


def test_id_is_recognized_for_its_identity_and_its_lifetime() -> None:
    ids = PeerIds(Random(1), 600.0)
    peer = ids.mint("ada", 1000.5)
    assert len(peer) == 56
    assert ids.is_recent(peer, "ada", 1599.0)
    assert not ids.is_recent(peer, "ada", 1600.5)
    assert not ids.is_recent(peer, "", 1001.0)
    assert not PeerIds(Random(2), 600.0).is_recent(peer, "ada", 1001.0)  # another hub process


@pytest.mark.parametrize("text", ["", "x", "0" * 56, "é" * 56, "a" * 5000])
def test_malformed_id_is_not_recognized(text: str) -> None:
    assert not PeerIds(Random(1), 600.0).is_recent(text, "", 0.0)


def test_changed_id_is_not_recognized() -> None:
    ids = PeerIds(Random(1), 600.0)
    peer = ids.mint("", 0.0)
    for at in range(len(peer)):
        other = "0" if peer[at] != "0" else "1"
        assert not ids.is_recent(peer[:at] + other + peer[at + 1 :], "", 0.0)


def test_retired_id_is_not_recognized() -> None:
    ids = PeerIds(Random(1), 600.0)
    first, second = ids.mint("", 0.0), ids.mint("", 0.0)
    ids.retire(first, 10.0)
    assert (ids.is_recent(first, "", 11.0), ids.is_recent(second, "", 11.0)) == (False, True)
    ids.retire(second, 700.0)
    assert list(ids._retired) == [second]  # expired ids are forgotten


def test_id_prefix_depends_only_on_the_id() -> None:
    ids = PeerIds(Random(1), 600.0)
    first, second = ids.mint("", 0.0), ids.mint("", 0.0)
    assert ids.id_prefix(first) == ids.id_prefix(first) != ids.id_prefix(second)
