"""The HTTP endpoints for operators: `/livez`, `/readyz` and `/metrics`."""

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
"""Seconds for which a metrics page is cached, because anybody may request it at any rate."""


class AdminEndpoints:
    """Health checks and metrics of one hub."""

    def __init__(
        self, exchange: Exchange, journal: "HubJournal | None", tracing: TraceSender | None, began_at: float
    ) -> None:
        """`began_at` is the start time of the counters, in Unix time."""
        self._exchange = exchange
        self._journal = journal
        self._tracing = tracing
        self._started_at = began_at
        self._version = version("fiveways")
        self.is_draining = False
        self.mqtt_gateway: MqttGateway | None = None
        """The connection to the MQTT broker, if there is one."""
        self.port: Port | None = None
        self.refused_connections: RefusedConnections | None = None
        self.clock: ClockGuard | None = None
        self._cached_metrics: dict[bool, tuple[float, Response]] = {}
        """By whether names are included: the time and the response of the last page."""

    def answer(self, request: Request) -> Response:
        """Answer a GET of one of the paths."""
        if request.path == METRICS:
            # Names of methods and topics are confidential: only peers that may call hub.traffic see them.
            hub, now = self._exchange.hub, self._exchange.now()
            try:
                return self._metrics_response(
                    names=hub.admission.may_call(read_credentials(request), "hub.traffic", now)
                )
            except Refusal as refusal:
                return refusal_response(refusal)
        if request.path == LIVE:
            return Response(200, b"ok\n")
        checks = list(self.health_checks())
        health, text = verdict(checks)
        body = render_checks(checks) if "verbose" in request.query.split("&") else ""
        return Response(503 if health is Health.UNHEALTHY else 200, f"{body}{text}\n".encode())

    # Health.

    def health_checks(self) -> Iterator[HealthCheck]:
        """Check every component."""
        yield (
            HealthCheck("hub", Health.UNHEALTHY, HUB_IS_CLOSING)
            if self.is_draining
            else HealthCheck("hub", Health.OK, "")
        )
        problem = self._exchange.session_log.problem()
        yield HealthCheck("sessions", Health.DEGRADED if problem else Health.OK, problem)
        persister = self._exchange.persister
        if persister.store is not None:
            error = persister.error
            health = Health.OK if error is None else Health.UNHEALTHY
            yield HealthCheck("store", health, "" if error is None else "the store cannot be written")
        if self.clock is not None and self.clock.problem():
            yield self.clock.check_health()
        if self._journal is not None:
            problem = self._journal.problem()
            yield HealthCheck("journal", Health.DEGRADED if problem else Health.OK, problem)
        if self.mqtt_gateway is not None:
            yield _check_broker(self.mqtt_gateway, self._exchange.now())

    # Metrics.

    def _metrics_response(self, *, names: bool) -> Response:
        now = self._exchange.now()
        cached = self._cached_metrics.get(names)
        if cached is None or now - cached[0] >= _CACHED_FOR:
            response = Response(
                200, metrics.render_metrics(self._snapshot(), names=names), content_type=metrics.CONTENT_TYPE
            )
            cached = self._cached_metrics[names] = now, response
        return cached[1]

    def _snapshot(self) -> metrics.MetricsSnapshot:
        exchange, hub = self._exchange, self._exchange.hub
        gauges = process_metrics.process_metrics()
        gauges["fiveways_start_time_seconds"] = self._started_at
        gauges["fiveways_outbox_bytes"] = sum(
            participant.unsent_bytes() for participant in exchange.participants.values()
        )
        gauges["fiveways_slow_peers"] = len(list(hub.traffic.slow_consumers()))
        if exchange.persister.store is not None:
            gauges["fiveways_store_waiting"] = exchange.persister.store.waiting
            gauges["fiveways_store_behind"] = exchange.persister.backlog_size
        if self.port is not None:
            gauges["fiveways_connections"] = self.port.connections()
            gauges["fiveways_unfinished_bytes"] = self.port.unfinished.held
        if self._journal is not None:
            gauges["fiveways_journaled_total"] = self._journal.written_records
            gauges["fiveways_journal_lost_total"] = self._journal.lost_records
        if self.mqtt_gateway is not None and (monitor := self.mqtt_gateway.claim_monitor) is not None:
            gauges["fiveways_broker_rival_topics"] = len(monitor.rivals)
            gauges["fiveways_broker_false_claims_total"] = monitor.false_claims
        if self._tracing is not None:
            gauges["fiveways_spans_sent_total"] = self._tracing.sent
            gauges["fiveways_spans_lost_total"] = self._tracing.lost
        ready = {each.component: each.health.value for each in self.health_checks()}
        refused = {} if self.refused_connections is None else self.refused_connections.counts
        return metrics.MetricsSnapshot(
            self._version, hub.stats(), hub.traffic, gauges, hub.queue_counts(), ready, refused
        )


def _check_broker(mqtt: MqttGateway, now: float) -> HealthCheck:
    if mqtt.is_answering:
        problem = "" if mqtt.claim_monitor is None else mqtt.claim_monitor.problem(now)
        return HealthCheck("broker", Health.DEGRADED if problem else Health.OK, problem)
    health = Health.DEGRADED if mqtt.has_answered else Health.UNHEALTHY
    if mqtt.is_connected:
        return HealthCheck("broker", health, "the hub does not answer requests at the broker yet")
    return HealthCheck(
        "broker",
        health,
        "the connection to the broker is lost" if mqtt.has_answered else "the broker has not been reached yet",
    )
