"""Importing this makes all features known, in the order of the page."""

from tests.bridges.features import calls, endings, others, streams, topics, values

__all__ = ["calls", "endings", "others", "streams", "topics", "values"]
