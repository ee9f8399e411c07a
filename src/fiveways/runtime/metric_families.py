"""Every number that is told under `/metrics`: its name, what it counts, and what tells one of a family from another."""

from typing import Final, NamedTuple

from fiveways.hub.histogram import BOUNDS

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class MetricFamily(NamedTuple):
    """Numbers of one name."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


def _hub(kind: str, numbers: dict[str, str]) -> list[MetricFamily]:
    """Return the families of the numbers that `hub.stats` tells by the same names."""
    end = "_total" if kind == COUNTER else ""
    return [MetricFamily(f"fiveways_{name}{end}", kind, what) for name, what in numbers.items()]


_GAUGES: Final = {
    "sessions": "Peers that are connected, or may come back.",
    "connected_sessions": "Sessions with a connection, as `max_sessions` counts them.",
    "resumable_sessions": "NQ sessions with or without a connection, as `max_resumable` counts them.",
    "offers": "Methods and routes on offer.",
    "subscriptions": "Subscriptions of all peers.",
    "retained": "Topics whose last value is kept.",
    "callbacks": "Callbacks that were not called yet.",
    "open_calls": "Calls that wait for their answer.",
    "owed": "Accepted requests of NQ that wait for their answer.",
    "incomplete_bytes": "Bytes of messages that wait for their attachments, as `max_incomplete_bytes` counts them.",
}
_COUNTERS: Final = {
    "calls": "Calls that were passed on to somebody.",
    "publications": "Publications.",
    "deliveries": "Events, one for each subscriber of each publication.",
    "results": "Calls that ended with a result.",
    "arrived": "Links that came, whoever was behind them.",
    "refused": "Requests that the hub itself did not carry out.",
    "refused_logins": "Peers that did not show who they are.",
    "refused_sessions": "Sessions and connections refused because a limit of sessions, or a share of it, is used up.",
    "dropped": "Requests that could not be carried out, and wanted no answer.",
    "stray": "Answers that nobody waited for.",
    "undelivered": "Words that the receiver's protocol could not say.",
}
_BRIDGE: Final = ("caller", "callee")

UNLABELLED: Final = (
    *_hub(GAUGE, _GAUGES),
    *_hub(COUNTER, _COUNTERS),
    MetricFamily("fiveways_outbox_bytes", GAUGE, "Bytes that wait for peers in memory, of all of them together."),
    MetricFamily("fiveways_slow_peers", GAUGE, "Peers that have missed events, or have much unread."),
    MetricFamily("fiveways_connections", GAUGE, "Open connections of HTTP and WebSocket."),
    MetricFamily(
        "fiveways_unfinished_bytes", GAUGE, "Bytes of frames and HTTP requests that have not come completely."
    ),
    MetricFamily("fiveways_journaled_total", COUNTER, "Records of the journal that are on disk."),
    MetricFamily("fiveways_journal_lost_total", COUNTER, "Records that could not be written to the journal."),
    MetricFamily("fiveways_store_waiting", GAUGE, "Changes that are being written to the store."),
    MetricFamily("fiveways_store_behind", GAUGE, "Changes that the store could not take, and that are tried again."),
    MetricFamily(
        "fiveways_broker_rival_topics", GAUGE, "Topics of this hub on which another hub at its MQTT broker answers."
    ),
    MetricFamily("fiveways_broker_false_claims_total", COUNTER, "Claims at the MQTT broker that no hub can have made."),
    MetricFamily("fiveways_spans_sent_total", COUNTER, "Spans of traces that the collector has."),
    MetricFamily("fiveways_spans_lost_total", COUNTER, "Spans that found no room, or no collector."),
    MetricFamily("fiveways_start_time_seconds", GAUGE, "When the hub began to count, in seconds since 1970."),
    MetricFamily("process_start_time_seconds", GAUGE, "When the process was started, in seconds since 1970."),
    MetricFamily("process_cpu_seconds_total", COUNTER, "Processor time of the hub's process, user and system."),
    MetricFamily("process_resident_memory_bytes", GAUGE, "Memory of the hub's process that is not swapped out."),
    MetricFamily("process_open_fds", GAUGE, "File descriptors that are open."),
    MetricFamily("process_max_fds", GAUGE, "File descriptors that may be open."),
)
"""Those that are one number each; what does not exist, such as a journal, has none."""

LABELLED: Final = (
    MetricFamily("fiveways_build_info", GAUGE, "Always 1; the labels tell what is running.", ("version", "python")),
    MetricFamily(
        "fiveways_ready", GAUGE, "1 where nothing is wrong, 0.5 where the hub goes on without it, else 0.", ("check",)
    ),
    MetricFamily(
        "fiveways_connections_refused_total",
        COUNTER,
        "Connections of HTTP and WebSocket that a limit refused or closed.",
        ("limit",),
    ),
    MetricFamily("fiveways_failures_total", COUNTER, "Calls that ended without a result, by reason.", ("reason",)),
    MetricFamily(
        "fiveways_queue_items", GAUGE, "Items of all work queues together, by what becomes of them.", ("state",)
    ),
    MetricFamily("fiveways_protocol_sessions", GAUGE, "Peers that are connected, or may come back.", ("protocol",)),
    MetricFamily("fiveways_frames_received_total", COUNTER, "Frames that came.", ("protocol",)),
    MetricFamily("fiveways_frames_sent_total", COUNTER, "Frames that went out, or wait to.", ("protocol",)),
    MetricFamily(
        "fiveways_received_bytes_total", COUNTER, "Bytes of frames that came, without the transport's.", ("protocol",)
    ),
    MetricFamily("fiveways_sent_bytes_total", COUNTER, "Bytes of frames that went out, likewise.", ("protocol",)),
    MetricFamily("fiveways_protocol_publications_total", COUNTER, "Publications, by who published.", ("protocol",)),
    MetricFamily("fiveways_protocol_deliveries_total", COUNTER, "Events, by who subscribed.", ("protocol",)),
    MetricFamily(
        "fiveways_bridge_calls_total",
        COUNTER,
        "Calls from peers of one protocol to those of another. The hub is a callee, too, and `app` is in its process.",
        _BRIDGE,
    ),
    MetricFamily("fiveways_bridge_failures_total", COUNTER, "Of these, those without a result.", (*_BRIDGE, "reason")),
    MetricFamily(
        "fiveways_method_calls_total", COUNTER, "Calls, by method; each try of a request is one.", ("method",)
    ),
    MetricFamily("fiveways_method_failures_total", COUNTER, "Of these, those without a result.", ("method", "reason")),
    MetricFamily(
        "fiveways_call_duration_seconds",
        HISTOGRAM,
        "From a call to its end, for those that were passed on to somebody.",
        ("method",),
    ),
    MetricFamily("fiveways_topic_publications_total", COUNTER, "Publications, by topic.", ("topic",)),
    MetricFamily("fiveways_topic_deliveries_total", COUNTER, "Events, one for each subscriber.", ("topic",)),
    MetricFamily("fiveways_topic_missed_total", COUNTER, "Of these, those that did not go out.", ("topic",)),
)
"""Those that are several numbers."""

FAMILIES: Final = {family.name: family for family in (*LABELLED, *UNLABELLED)}

_HEAD: Final = """# Metrics

`/metrics` tells these in the text format of Prometheus, version 0.0.4. All times are in seconds, all sizes in bytes.
The built-in method `hub.traffic` tells most of them as JSON, in any protocol. A page is made once a second at most, and
told again until then.

```yaml
scrape_configs:
  - job_name: fiveways
    static_configs:
      - targets: ["localhost:7500"]
```

Names of methods and topics come from peers, so that only so many of them are labels: `max_methods` and `max_topics` of
`[metrics]` in the [configuration](configuration.md). What finds no room is counted as `(other)`. When that happens
often, the names make room that were used least: their own numbers end there, and what comes under them from then on is
counted as `(other)`, or anew if they have room again. So nothing is counted twice, and the sum over all names falls at
that moment; `hub.traffic` tells of calls how many that were in all, as `forgotten`. Numbers by protocol, and by
`caller` and `callee`, hold everything. The hub's own methods always have room. A call that nobody is given is counted
by its name if that is on offer, or was; below a route by the name of the route; else as `(unknown)`. Callbacks are
`(callback)`; work of queues is counted as `hub.pull`. A label never holds a token, an id of a peer, or anything that
was sent. What has a label `method` or `topic` is told only to those who may call `hub.traffic`: without a token where
the hub takes the anonymous, else with `Authorization: Bearer`, which Prometheus calls `authorization`. A token that
nobody has is answered with 401, and is a refused login like any other.

An [observer](hub.md#sessions-and-observers), such as the dashboard, has `observer` in place of its protocol for its
frames, and for its calls of the hub's own methods. `hub.traffic` leaves these out.

A request of NQ that is given to several callees, one after the other, is a call for each of them. Behind an MQTT broker
the hub hears its own messages as well: they count as frames that came.
"""


def render_reference() -> str:
    """Return the reference, in Markdown."""
    lines = [_HEAD, "| name | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for family in FAMILIES.values():
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    bounds = ", ".join(f"{bound:g}" for bound in BOUNDS)
    lines += ["", f"The buckets of the histogram end at {bounds} seconds.", ""]
    return "\n".join([*lines, "This page is made from the code by `python -m fiveways.runtime.metric_families`.", ""])


if __name__ == "__main__":
    print(render_reference(), end="")  # noqa: T201
