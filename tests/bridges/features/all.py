"""Importing this makes all features known, in the order of the page."""

from tests.bridges.features import calls

__all__ = ["calls"]
