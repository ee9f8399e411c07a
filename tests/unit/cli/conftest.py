"""Fixtures for tests of the command line."""

from tests.support.cli_fixtures import clean, said

__all__ = ["clean", "said"]
