"""Tests that need a broker ask for `broker`."""

from tests.support.broker_processes import broker

__all__ = ["broker"]
