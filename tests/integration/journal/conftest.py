"""Each broker in turn, for all tests here that want one."""

from tests.support.broker_processes import broker

__all__ = ["broker"]
