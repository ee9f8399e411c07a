"""What those are told who watch over a hub: `/livez`, `/readyz`, `/metrics`."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from fiveways.hub.refusal import Refusal
from fiveways.runtime import metrics, process_metrics
from fiveways.runtime.clock_guard import ClockGuard
from fiveways.runtime.exchange import Exchange
from fiveways.runtime.health import Health, HealthCheck, render_checks, verdict
from fiveways.runtime.http_authentication import read_credentials, refusal_response
from fiveways.runtime.mqtt.gateway import MqttGateway
from fiveways.runtime.refused_connections import RefusedConnections
from fiveways.runtime.trace_sender import TraceSender
from fiveways.transports.http import Request, Response
from fiveways.transports.http_port import Port

if TYPE_CHECKING:
    from fiveways.runtime.hub_journal import HubJournal

LIVE, READY, METRICS = "/livez", "/readyz", "/metrics"
ADMIN_PATHS: Final = (LIVE, READY, METRICS)
HUB_IS_CLOSING: Final = "closing"
_CACHED_FOR: Final = 1.0
"""Seconds for which a page of numbers is told again: anybody may ask for it, as often as a port can be asked."""


class AdminEndpoints:
    """Looks at the parts of one hub when it is asked to."""

    def __init__(
        self, exchange: Exchange, journaling: "HubJournal | None", tracing: TraceSender | None, began_at: float
    ) -> None:
        """Make it; `began_at` is when the hub began to count, in seconds since 1970."""
        self._exchange = exchange
        self._journaling = journaling
        self._tracing = tracing
        self._began_at = began_at
        self._version = version("fiveways")
        self.is_draining = False
        self.mqtt_gateway: MqttGateway | None = None
        """The broker, if there is one."""
        self.port: Port | None = None
        self.refused_connections: RefusedConnections | None = None
        self.clock: ClockGuard | None = None
        self._cached_metrics: dict[bool, tuple[float, Response]] = {}
        """The last page with names, and the last one without, and when they were made."""

    def answer(self, request: Request) -> Response:
        """Answer a GET of one of the paths."""
        if request.path == METRICS:
            # Names of methods and topics tell what a team is doing: they are for those who could ask for them.
            hub, now = self._exchange.hub, self._exchange.now()
            try:
                return self._metrics_response(
                    names=hub.admission.may_call(read_credentials(request), "hub.traffic", now)
                )
            except Refusal as refusal:
                return refusal_response(refusal)
        if request.path == LIVE:
            return Response(200, b"ok\n")
        findings = list(self.health_checks())
        health, text = verdict(findings)
        body = render_checks(findings) if "verbose" in request.query.split("&") else ""
        return Response(503 if health is Health.UNHEALTHY else 200, f"{body}{text}\n".encode())

    # How it is.

    def health_checks(self) -> Iterator[HealthCheck]:
        """Look at every part that there is."""
        yield (
            HealthCheck("hub", Health.UNHEALTHY, HUB_IS_CLOSING)
            if self.is_draining
            else HealthCheck("hub", Health.OK, "")
        )
        full = self._exchange.session_log.problem()
        yield HealthCheck("sessions", Health.DEGRADED if full else Health.OK, full)
        keeping = self._exchange.persister
        if keeping.store is not None:
            trouble = keeping.error
            bad = Health.OK if trouble is None else Health.UNHEALTHY
            yield HealthCheck("store", bad, "" if trouble is None else "the store cannot be written")
        if self.clock is not None and self.clock.problem():
            yield self.clock.check_health()
        if self._journaling is not None:
            why = self._journaling.problem()
            yield HealthCheck("journal", Health.DEGRADED if why else Health.OK, why)
        if self.mqtt_gateway is not None:
            yield _check_broker(self.mqtt_gateway, self._exchange.now())

    # In numbers.

    def _metrics_response(self, *, names: bool) -> Response:
        now = self._exchange.now()
        known = self._cached_metrics.get(names)
        if known is None or now - known[0] >= _CACHED_FOR:
            page = Response(
                200, metrics.render_metrics(self._snapshot(), names=names), content_type=metrics.CONTENT_TYPE
            )
            known = self._cached_metrics[names] = now, page
        return known[1]

    def _snapshot(self) -> metrics.MetricsSnapshot:
        exchange, hub = self._exchange, self._exchange.hub
        plain = process_metrics.process_metrics()
        plain["fiveways_start_time_seconds"] = self._began_at
        plain["fiveways_outbox_bytes"] = sum(party.unsent_bytes() for party in exchange.participants.values())
        plain["fiveways_slow_peers"] = len(list(hub.traffic.slow_consumers()))
        if exchange.persister.store is not None:
            plain["fiveways_store_waiting"] = exchange.persister.store.waiting
            plain["fiveways_store_behind"] = exchange.persister.backlog_size
        if self.port is not None:
            plain["fiveways_connections"] = self.port.connections()
            plain["fiveways_unfinished_bytes"] = self.port.unfinished.held
        if self._journaling is not None:
            plain["fiveways_journaled_total"] = self._journaling.written_records
            plain["fiveways_journal_lost_total"] = self._journaling.lost_records
        if self.mqtt_gateway is not None and (contest := self.mqtt_gateway.claim_monitor) is not None:
            plain["fiveways_broker_rival_topics"] = len(contest.rivals)
            plain["fiveways_broker_false_claims_total"] = contest.false_claims
        if self._tracing is not None:
            plain["fiveways_spans_sent_total"] = self._tracing.sent
            plain["fiveways_spans_lost_total"] = self._tracing.lost
        ready = {each.component: each.health.value for each in self.health_checks()}
        refused = {} if self.refused_connections is None else self.refused_connections.counts
        return metrics.MetricsSnapshot(
            self._version, hub.stats(), hub.traffic, plain, hub.queue_counts(), ready, refused
        )


def _check_broker(mqtt: MqttGateway, now: float) -> HealthCheck:
    if mqtt.is_answering:
        why = "" if mqtt.claim_monitor is None else mqtt.claim_monitor.problem(now)
        return HealthCheck("broker", Health.DEGRADED if why else Health.OK, why)
    health = Health.DEGRADED if mqtt.has_answered else Health.UNHEALTHY
    if mqtt.is_connected:
        return HealthCheck("broker", health, "the hub does not answer at the broker yet")
    return HealthCheck(
        "broker", health, "the broker is away" if mqtt.has_answered else "the broker was not reached yet"
    )
