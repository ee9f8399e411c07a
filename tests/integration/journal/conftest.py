"""The broker fixture: each test runs once per broker."""

from tests.support.broker_processes import broker

__all__ = ["broker"]
