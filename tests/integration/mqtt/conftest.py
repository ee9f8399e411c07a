"""Each broker in turn, for all tests here."""

from tests.support.broker_processes import broker

__all__ = ["broker"]
