"""Tests that need a broker ask for `broker`."""

from tests.brokers.broker_processes import broker

__all__ = ["broker"]
