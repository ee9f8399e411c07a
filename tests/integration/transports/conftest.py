"""Fixtures of the transport tests."""

from tests.support.broker_processes import broker

__all__ = ["broker"]
