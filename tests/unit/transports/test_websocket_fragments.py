"""Tests of fragmented messages with discarded content."""

from fiveways.transports.spool import DiskSpools
from fiveways.transports.websocket_fragments import SPOOL_ABOVE, FragmentedMessage
from fiveways.wire.packet import Packet


def test_discarded_message_releases_its_memory() -> None:
    fragments = FragmentedMessage(is_text=False, max_size=1000, spools=None)
    fragments.add(b"x" * 600)
    fragments.discard()
    assert fragments.held == 0
    fragments.add(b"y" * 600)
    assert (fragments.held, fragments.size) == (0, 1200)
    assert fragments.finish() == Packet(b"", is_text=False)


def test_discarded_message_releases_its_disk_space() -> None:
    spools = DiskSpools(1 << 30, 1 << 30)
    fragments = FragmentedMessage(is_text=False, max_size=1000, spools=spools)
    fragments.add(b"x" * (SPOOL_ABOVE + 1))
    assert spools.used == SPOOL_ABOVE + 1
    fragments.discard()
    fragments.add(b"y" * (SPOOL_ABOVE + 1))
    assert spools.used == 0
    assert fragments.finish() == Packet(b"", is_text=False)


def test_text_is_never_discarded() -> None:
    fragments = FragmentedMessage(is_text=True, max_size=1000, spools=None)
    fragments.add(b"one ")
    fragments.discard()
    fragments.add(b"two")
    assert fragments.finish() == Packet(b"one two")
