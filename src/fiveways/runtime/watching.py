"""What those are told who watch over a hub: `/livez`, `/readyz`, `/metrics`."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from fiveways.hub.refusal import Refusal
from fiveways.runtime import metrics, process
from fiveways.runtime.clock_guard import ClockGuard
from fiveways.runtime.exchange import Exchange
from fiveways.runtime.health import Finding, Health, listed, verdict
from fiveways.runtime.logins import credentials_of, refused_login
from fiveways.runtime.mqtt.side import MqttSide
from fiveways.runtime.refusals import Refusals
from fiveways.runtime.tracing import Tracing
from fiveways.transports.http import Request, Response
from fiveways.transports.port import Port

if TYPE_CHECKING:
    from fiveways.runtime.journaling import Journaling

LIVE, READY, METRICS = "/livez", "/readyz", "/metrics"
PATHS: Final = (LIVE, READY, METRICS)
CLOSING: Final = "closing"
_KEPT: Final = 1.0
"""Seconds for which a page of numbers is told again: anybody may ask for it, as often as a port can be asked."""


class Watching:
    """Looks at the parts of one hub when it is asked to."""

    def __init__(
        self, exchange: Exchange, journaling: "Journaling | None", tracing: Tracing | None, began_at: float
    ) -> None:
        """Make it; `began_at` is when the hub began to count, in seconds since 1970."""
        self._exchange = exchange
        self._journaling = journaling
        self._tracing = tracing
        self._began_at = began_at
        self._version = version("fiveways")
        self.is_draining = False
        self.mqtt: MqttSide | None = None
        """The broker, if there is one."""
        self.port: Port | None = None
        self.refusals: Refusals | None = None
        self.clock: ClockGuard | None = None
        self._pages: dict[bool, tuple[float, Response]] = {}
        """The last page with names, and the last one without, and when they were made."""

    def answer(self, request: Request) -> Response:
        """Answer a GET of one of the paths."""
        if request.path == METRICS:
            # Names of methods and topics tell what a team is doing: they are for those who could ask for them.
            hub, now = self._exchange.hub, self._exchange.now()
            try:
                return self._page(names=hub.gate.may_call(credentials_of(request), "hub.traffic", now))
            except Refusal as refusal:
                return refused_login(refusal)
        if request.path == LIVE:
            return Response(200, b"ok\n")
        findings = list(self.findings())
        health, text = verdict(findings)
        body = listed(findings) if "verbose" in request.query.split("&") else ""
        return Response(503 if health is Health.BAD else 200, f"{body}{text}\n".encode())

    # How it is.

    def findings(self) -> Iterator[Finding]:
        """Look at every part that there is."""
        yield Finding("hub", Health.BAD, CLOSING) if self.is_draining else Finding("hub", Health.WELL, "")
        full = self._exchange.doors.trouble()
        yield Finding("sessions", Health.WORSE if full else Health.WELL, full)
        keeping = self._exchange.keeping
        if keeping.store is not None:
            trouble = keeping.trouble
            bad = Health.WELL if trouble is None else Health.BAD
            yield Finding("store", bad, "" if trouble is None else "the store cannot be written")
        if self.clock is not None and self.clock.trouble():
            yield self.clock.finding()
        if self._journaling is not None:
            why = self._journaling.trouble()
            yield Finding("journal", Health.WORSE if why else Health.WELL, why)
        if self.mqtt is not None:
            yield _of_broker(self.mqtt, self._exchange.now())

    # In numbers.

    def _page(self, *, names: bool) -> Response:
        now = self._exchange.now()
        known = self._pages.get(names)
        if known is None or now - known[0] >= _KEPT:
            page = Response(200, metrics.told(self._numbers(), names=names), content_type=metrics.CONTENT_TYPE)
            known = self._pages[names] = now, page
        return known[1]

    def _numbers(self) -> metrics.Numbers:
        exchange, hub = self._exchange, self._exchange.hub
        plain = process.numbers()
        plain["fiveways_start_time_seconds"] = self._began_at
        plain["fiveways_outbox_bytes"] = sum(party.waiting() for party in exchange.parties.values())
        plain["fiveways_slow_peers"] = len(list(hub.traffic.slow()))
        if exchange.keeping.store is not None:
            plain["fiveways_store_waiting"] = exchange.keeping.store.waiting
            plain["fiveways_store_behind"] = exchange.keeping.behind
        if self.port is not None:
            plain["fiveways_connections"] = self.port.connections()
            plain["fiveways_unfinished_bytes"] = self.port.unfinished.held
        if self._journaling is not None:
            plain["fiveways_journaled_total"] = self._journaling.written
            plain["fiveways_journal_lost_total"] = self._journaling.lost
        if self.mqtt is not None and (contest := self.mqtt.contest) is not None:
            plain["fiveways_broker_rival_topics"] = len(contest.rivals)
            plain["fiveways_broker_false_claims_total"] = contest.false_claims
        if self._tracing is not None:
            plain["fiveways_spans_sent_total"] = self._tracing.sent
            plain["fiveways_spans_lost_total"] = self._tracing.lost
        ready = {each.part: each.health.value for each in self.findings()}
        refused = {} if self.refusals is None else self.refusals.counts
        return metrics.Numbers(self._version, hub.stats(), hub.traffic, plain, hub.queues(), ready, refused)


def _of_broker(mqtt: MqttSide, now: float) -> Finding:
    if mqtt.is_answering:
        why = "" if mqtt.contest is None else mqtt.contest.trouble(now)
        return Finding("broker", Health.WORSE if why else Health.WELL, why)
    health = Health.WORSE if mqtt.has_answered else Health.BAD
    if mqtt.is_linked:
        return Finding("broker", health, "the hub does not answer at the broker yet")
    return Finding("broker", health, "the broker is away" if mqtt.has_answered else "the broker was not reached yet")
