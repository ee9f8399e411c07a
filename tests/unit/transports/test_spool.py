"""Tests of spools: content, limits and released space."""

from pathlib import Path

import pytest

from fiveways.transports.spool import DiskSpool, DiskSpools


def test_blob_is_readable_at_any_offset() -> None:
    spool = DiskSpools(100, 100).open()
    spool.write(b"hello ")
    spool.write(b"world")
    blob = spool.finish()
    assert (len(blob), bytes(blob), blob.read(6, 3), blob.read(8, 99), blob.error) == (
        11,
        b"hello world",
        b"wor",
        b"rld",
        None,
    )


def test_space_is_released_with_the_blob() -> None:
    spools = DiskSpools(100, 100)
    blob = spools.store(b"x" * 60)
    assert spools.used == 60
    del blob
    assert spools.used == 0


def test_space_is_released_with_an_unfinished_spool() -> None:
    spools = DiskSpools(100, 100)
    spool = spools.open()
    spool.write(b"x" * 60)
    del spool
    assert spools.used == 0


def test_address_is_limited_to_its_share() -> None:
    spools = DiskSpools(100, 100, share=0.5)
    blobs = [spools.for_remote("10.0.0.1:1").store(b"x" * 30), spools.for_remote("10.0.0.1:2").store(b"x" * 20)]
    refused = spools.for_remote("10.0.0.1:3").store(b"y")
    assert refused.error == "the limit for attachments on disk is reached for 10.0.0.1"
    blobs.append(spools.for_remote("10.0.0.2:1").store(b"x" * 50))
    assert [blob.error for blob in blobs] == [None] * 3
    blobs.clear()
    assert (spools.used, spools._by_address) == (0, {})


def test_too_large_attachment_is_counted_but_not_stored() -> None:
    spools = DiskSpools(100, 10)
    spool = spools.open()
    spool.write(b"x" * 10)
    spool.write(b"y")
    spool.write(b"z")
    blob = spool.finish()
    assert (len(blob), blob.error, spools.used) == (12, "larger than 10 bytes", 0)
    with pytest.raises(OSError, match="larger than 10 bytes"):
        blob.read(0, 1)


def test_total_size_is_limited() -> None:
    spools = DiskSpools(10, 10)
    first = spools.store(b"x" * 6)
    second = spools.store(b"x" * 5)
    assert (first.error, second.error, spools.used) == (None, "the limit for attachments on disk is reached", 6)


def test_full_disk_fails_only_the_attachment() -> None:
    spools = DiskSpools(1 << 20, 1 << 20)
    spool = DiskSpool(spools, Path("/dev/full").open("r+b", buffering=0), "")  # noqa: SIM115  the spool closes it
    spool.write(b"x")
    assert (spool.finish().error, spools.used) == ("the disk is full", 0)
