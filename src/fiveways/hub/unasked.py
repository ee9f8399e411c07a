"""Calls that nobody was given: refused, called off, or waited for in vain. Their names may be anything."""

from fiveways.hub.builtins import BuiltIns
from fiveways.hub.offers import Offers
from fiveways.hub.session import Session
from fiveways.hub.traffic import CALLBACK, HUB, UNKNOWN, Failed, Traffic
from fiveways.model.failures import Reason
from fiveways.model.messages import Call


class Unasked:
    """Counts them, by names that their callers could not make up."""

    def __init__(self, offers: Offers, built_ins: BuiltIns, traffic: Traffic) -> None:
        self._offers = offers
        self._built_ins = built_ins
        self._traffic = traffic

    def count(self, caller: Session, word: Call, reason: Reason, text: str, now: float) -> None:
        """Count one that has failed."""
        name = CALLBACK if word.callback else word.method
        known = word.callback or name in self._built_ins
        label = name if known else self._offers.known_as(name) or UNKNOWN
        self._traffic.refused(label, Failed(now, name, caller.traits.protocol, HUB, reason, text, caller.name))
