"""The metrics of `/metrics`: names, types, labels and help texts."""

from typing import Final, NamedTuple

from fiveways.hub.histogram import BOUNDS

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class MetricFamily(NamedTuple):
    """A metric name with its type, help text and labels."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


def _hub(kind: str, help_texts: dict[str, str]) -> list[MetricFamily]:
    """Return the families of numbers that `hub.stats` returns by the same names."""
    suffix = "_total" if kind == COUNTER else ""
    return [MetricFamily(f"fiveways_{name}{suffix}", kind, help_text) for name, help_text in help_texts.items()]


_GAUGES: Final = {
    "sessions": "Open sessions, including NQ sessions that can be resumed.",
    "connected_sessions": "Sessions with a connection, as limits.max_sessions counts them.",
    "resumable_sessions": "NQ sessions with or without a connection, as limits.max_resumable counts them.",
    "offers": "Registered methods and routes.",
    "subscriptions": "Subscriptions of all peers.",
    "retained": "Topics with a retained value.",
    "callbacks": "Callbacks that have not been called yet.",
    "open_calls": "Pending calls.",
    "owed": "Accepted durable requests without a response so far.",
    "incomplete_bytes": "Bytes of messages waiting for attachments, as limits.max_incomplete_bytes counts them.",
}
_COUNTERS: Final = {
    "calls": "Calls forwarded to a callee.",
    "publications": "Publications by peers.",
    "deliveries": "Events, one for each subscriber of each publication.",
    "results": "Calls that ended with a result.",
    "arrived": "Sessions begun, including refused ones.",
    "refused": "Requests that the hub itself refused.",
    "refused_logins": "Logins refused because authentication failed.",
    "refused_sessions": "Sessions and connections refused because a session limit, or a share of it, is used up.",
    "dropped": "Failed requests that expected no response.",
    "stray": "Responses without a pending call.",
    "undelivered": "Messages that the receiver's protocol cannot represent.",
}
_BRIDGE: Final = ("caller", "callee")

UNLABELLED: Final = (
    *_hub(GAUGE, _GAUGES),
    *_hub(COUNTER, _COUNTERS),
    MetricFamily("fiveways_outbox_bytes", GAUGE, "Bytes in memory that wait in the outboxes of all peers."),
    MetricFamily("fiveways_slow_peers", GAUGE, "Slow consumers: peers that missed events or have many unread bytes."),
    MetricFamily("fiveways_connections", GAUGE, "Open HTTP and WebSocket connections."),
    MetricFamily("fiveways_unfinished_bytes", GAUGE, "Bytes of partly received frames and HTTP requests."),
    MetricFamily("fiveways_journaled_total", COUNTER, "Journal records on disk."),
    MetricFamily("fiveways_journal_lost_total", COUNTER, "Records that could not be written to the journal."),
    MetricFamily("fiveways_store_waiting", GAUGE, "Changes that are being written to the store."),
    MetricFamily("fiveways_store_behind", GAUGE, "Changes whose write to the store failed and is tried again."),
    MetricFamily("fiveways_broker_rival_topics", GAUGE, "Topics of this hub that another hub at its MQTT broker owns."),
    MetricFamily(
        "fiveways_broker_false_claims_total", COUNTER, "Topic claims at the MQTT broker that no hub can have published."
    ),
    MetricFamily("fiveways_spans_sent_total", COUNTER, "Trace spans that the collector accepted."),
    MetricFamily(
        "fiveways_spans_lost_total", COUNTER, "Trace spans dropped by a full queue or not accepted by the collector."
    ),
    MetricFamily("fiveways_start_time_seconds", GAUGE, "Start time of the hub's counters, in Unix time."),
    MetricFamily("process_start_time_seconds", GAUGE, "Start time of the hub's process, in Unix time."),
    MetricFamily("process_cpu_seconds_total", COUNTER, "CPU time of the hub's process, user and system."),
    MetricFamily("process_resident_memory_bytes", GAUGE, "Resident memory of the hub's process."),
    MetricFamily("process_open_fds", GAUGE, "Open file descriptors of the hub's process."),
    MetricFamily("process_max_fds", GAUGE, "Maximum number of open file descriptors of the hub's process."),
)
"""Families without labels. A family without a source, such as the journal's without a journal, is omitted."""

LABELLED: Final = (
    MetricFamily("fiveways_build_info", GAUGE, "Always 1; the labels hold the versions.", ("version", "python")),
    MetricFamily(
        "fiveways_ready",
        GAUGE,
        "Health of a component: 1 if healthy, 0.5 if degraded, 0 if the hub is not ready because of it.",
        ("check",),
    ),
    MetricFamily(
        "fiveways_connections_refused_total",
        COUNTER,
        "HTTP and WebSocket connections that a limit refused or closed.",
        ("limit",),
    ),
    MetricFamily("fiveways_failures_total", COUNTER, "Calls that ended without a result, by reason.", ("reason",)),
    MetricFamily("fiveways_queue_items", GAUGE, "Jobs of all work queues, by state.", ("state",)),
    MetricFamily(
        "fiveways_protocol_sessions",
        GAUGE,
        "Open sessions by protocol, including NQ sessions that can be resumed.",
        ("protocol",),
    ),
    MetricFamily("fiveways_frames_received_total", COUNTER, "Frames received from peers.", ("protocol",)),
    MetricFamily("fiveways_frames_sent_total", COUNTER, "Frames sent to peers, including queued ones.", ("protocol",)),
    MetricFamily(
        "fiveways_received_bytes_total",
        COUNTER,
        "Payload bytes received from peers, excluding transport framing.",
        ("protocol",),
    ),
    MetricFamily(
        "fiveways_sent_bytes_total",
        COUNTER,
        "Payload bytes sent to peers, excluding transport framing.",
        ("protocol",),
    ),
    MetricFamily(
        "fiveways_protocol_publications_total", COUNTER, "Publications, by the publisher's protocol.", ("protocol",)
    ),
    MetricFamily("fiveways_protocol_deliveries_total", COUNTER, "Events, by the subscriber's protocol.", ("protocol",)),
    MetricFamily(
        "fiveways_bridge_calls_total",
        COUNTER,
        "Calls, by the protocols of caller and callee. The hub itself counts as a callee; `app` is in its process.",
        _BRIDGE,
    ),
    MetricFamily(
        "fiveways_bridge_failures_total",
        COUNTER,
        "Calls that ended without a result, by the protocols of caller and callee and by reason.",
        (*_BRIDGE, "reason"),
    ),
    MetricFamily(
        "fiveways_method_calls_total",
        COUNTER,
        "Calls by method; each delivery of a durable request counts as one call.",
        ("method",),
    ),
    MetricFamily(
        "fiveways_method_failures_total",
        COUNTER,
        "Calls that ended without a result, by method and reason.",
        ("method", "reason"),
    ),
    MetricFamily(
        "fiveways_call_duration_seconds",
        HISTOGRAM,
        "Time from a call to its end, for calls forwarded to a callee.",
        ("method",),
    ),
    MetricFamily("fiveways_topic_publications_total", COUNTER, "Publications by topic.", ("topic",)),
    MetricFamily("fiveways_topic_deliveries_total", COUNTER, "Events by topic, one for each subscriber.", ("topic",)),
    MetricFamily(
        "fiveways_topic_missed_total", COUNTER, "Events by topic that were not sent to a subscriber.", ("topic",)
    ),
)
"""Families with labels."""

FAMILIES: Final = {family.name: family for family in (*LABELLED, *UNLABELLED)}

_HEAD: Final = """# Metrics

`/metrics` returns the metrics of a hub in the Prometheus text format, version 0.0.4. Times are in
seconds, sizes in bytes. The built-in method `hub.traffic` returns most of them as JSON, in any
protocol. A page is cached for one second.

```yaml
scrape_configs:
  - job_name: fiveways
    static_configs:
      - targets: ["localhost:7500"]
```

## Labels

Peers choose the names of methods and topics, so the number of labels is limited: `max_methods` and
`max_topics` of `[metrics]` in the [configuration](configuration.md). Calls and events beyond the
limit count as `(other)`. If that happens often, the least used names make room. Their series end;
their later calls and events count as `(other)`, or start from 0 if they get a label again. Nothing
counts twice, but the sum over all names falls at that moment; `hub.traffic` returns the number of
calls removed this way as `forgotten`. Metrics by protocol, and by `caller` and `callee`, are
complete. The hub's built-in methods always have a label.

- A call without a callee counts under its name if that is or was registered, below a route under
  the name of the route, else as `(unknown)`.
- Callbacks are `(callback)`; jobs of work queues count as `hub.pull`.
- A label never holds a token, a peer id or payload.
- An [observer](hub.md#sessions-and-observers), such as the dashboard, has the label value
  `observer` instead of its protocol for its frames and for its calls of built-in methods.
  `hub.traffic` leaves these out.
- A durable request that is delivered to several callees in turn is one call for each of them.
- Behind an MQTT broker, the hub also receives its own messages: they count as received frames.

## Access

Metrics with the label `method` or `topic` are visible only to clients that may call `hub.traffic`:
without a token if the hub admits anonymous peers, else with `Authorization: Bearer`, which
Prometheus calls `authorization`. An unknown token is answered with 401 and counts as a refused
login.

## Reference
"""


def render_reference() -> str:
    """Return the page of all metrics."""
    lines = [_HEAD, "| name | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for family in FAMILIES.values():
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    bounds = ", ".join(f"{bound:g}" for bound in BOUNDS)
    lines += ["", f"The upper bounds of the histogram's buckets are {bounds} seconds.", ""]
    return "\n".join([*lines, "This page is generated by `python -m fiveways.runtime.metric_families`.", ""])


if __name__ == "__main__":
    print(render_reference(), end="")  # noqa: T201
