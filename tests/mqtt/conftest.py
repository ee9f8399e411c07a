"""Each broker in turn, for all tests here."""

from tests.brokers.running import broker

__all__ = ["broker"]
