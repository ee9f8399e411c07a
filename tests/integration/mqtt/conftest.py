"""The `broker` fixture: each supported broker in turn."""

from tests.support.broker_processes import broker

__all__ = ["broker"]
