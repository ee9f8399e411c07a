"""Tests that need a broker ask for `broker`."""

from tests.brokers.running import broker

__all__ = ["broker"]
