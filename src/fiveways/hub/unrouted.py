"""Counters of calls that reached no callee: refused, cancelled or expired."""

from fiveways.errors import Reason
from fiveways.hub.builtin_methods import BuiltInMethods
from fiveways.hub.registrations import Registrations
from fiveways.hub.session import Session
from fiveways.hub.traffic_totals import CALLBACK_LABEL, UNKNOWN_LABEL, FailureRecord, TrafficTotals
from fiveways.model.messages import Call


class UnroutedCalls:
    """Counts such calls under names that callers cannot invent."""

    def __init__(self, registrations: Registrations, built_ins: BuiltInMethods, traffic: TrafficTotals) -> None:
        self._registrations = registrations
        self._built_ins = built_ins
        self._traffic = traffic

    def count(self, caller: Session, call: Call, reason: Reason, text: str, now: float) -> None:
        """Count a failed call."""
        name = CALLBACK_LABEL if call.callback else call.method
        is_known = call.callback or name in self._built_ins
        label = name if is_known else self._registrations.known_name(name) or UNKNOWN_LABEL
        self._traffic.count_refused(label, FailureRecord.at_hub(now, name, caller, reason, text))
