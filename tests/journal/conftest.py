"""Each broker in turn, for all tests here that want one."""

from tests.brokers.running import broker

__all__ = ["broker"]
