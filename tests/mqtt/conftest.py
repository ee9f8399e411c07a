"""Each broker in turn, for all tests here."""

from tests.brokers.broker_processes import broker

__all__ = ["broker"]
