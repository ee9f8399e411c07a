"""The registry of all features; `ORDER` is their order on the page."""

from typing import Final

from tests.conformance.bridges.feature_outcomes import FEATURES, Feature
from tests.conformance.bridges.features import calls, disconnects, miscellaneous, streams, topics, values

_KNOWN: Final = (calls, disconnects, miscellaneous, streams, topics, values)
_KEYS: Final = """
call failure not-run timeout cancel callee-dies caller-dies stream request publish retained attachment bytes callback
variable discovery queue text numbers nesting large
"""
ORDER: Final[dict[str, Feature]] = {key: FEATURES[key] for key in _KEYS.split()}
assert ORDER.keys() == FEATURES.keys(), f"{len(_KNOWN)} modules have features that have no place on the page"
