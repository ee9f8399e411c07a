"""What is talked about: methods, topics, bodies, and the ways in which a call can fail, as protocols write them."""

from dataclasses import dataclass
from typing import Final

from fiveways.errors import Execution, Reason
from fiveways.model import names, topics

NUMBER_PLACEHOLDER: Final = "@@@@@@"
"""Stands in a body for a number, which always has six digits, so that lengths are known beforehand."""

BODIES: Final = (
    '{"account":@@@@@@,"amount":12.5}',
    "[@@@@@@,2]",
    '"just a word"',
    "null",
    '{"rows":[[1,"a",true],[2,"b",false]],"n":@@@@@@}',
    '{"text":"say \\"hi\\", [ok] {x}: y","n":@@@@@@}',
    '{"name":"Žluťoučký kůň","n":@@@@@@}',
    '{"note":"' + "so it goes, " * 30 + '","n":@@@@@@}',
)

_OFFERED: Final = {
    "Account": ("getBalance", "transfer", "close", "listEntries", "getOwner", "freeze"),
    "Stock": ("listTrades", "quote", "buy", "sell", "history", "watch"),
    "Mail": ("send", "search", "markRead", "getHTTPHeaders", "archive", "count"),
    "Report": ("render", "listAll", "drop", "schedule", "getStatus", "export"),
    "Search": ("find", "suggest", "reindex", "explain", "similar", "getIndexSize"),
    "SensorHub2": ("read", "calibrate", "listIDs", "reset", "SHA256Sum", "getName"),
    "HTTPGate": ("fetch", "head", "post", "resolve", "ping", "trace"),
    "Shop": ("addItem", "removeItem", "checkout", "getCart", "listOffers", "rate"),
}


@dataclass(frozen=True, slots=True)
class Method:
    """A method, as the hub knows it and as it is written."""

    folded: str
    umq: str
    umq36: str
    lrpm: str
    topic: str
    kind: str
    nq: str

    def written(self, protocol: str) -> str:
        """Return how the protocol writes it, MQTT left aside."""
        return {"umq": self.umq, "umq36": self.umq36, "nq": self.nq}.get(protocol, self.lrpm)


def _served_method(space: str, name: str) -> Method:
    folded = names.fold(f"{space}:{name}", names.UMQ)
    return Method(folded, f"{space}:{name}", f"{space}.{name}", folded, f"/{space}", name, folded.replace(".", "-"))


def _builtin_method(name: str) -> Method:
    return Method(f"hub.{name}", f"hub:{name}", f"hub.{name}", f"hub.{name}", "/hub", name, f"hub-{name}")


SERVED: Final = tuple(_served_method(space, name) for space, each in _OFFERED.items() for name in each)
BUILTINS: Final = tuple(map(_builtin_method, ("ping", "echo", "time", "stats", "publish", "register", "subscribe")))
UNKNOWN_METHODS: Final = tuple(_served_method("Nowhere", name) for name in ("doIt", "findMe", "wasHere"))
METHODS: Final = (*SERVED, *BUILTINS, *UNKNOWN_METHODS)
PLAIN_BUILTINS: Final = range(len(SERVED), len(SERVED) + 4)
HUB_PUBLISH, HUB_REGISTER, HUB_SUBSCRIBE = range(len(SERVED) + 4, len(SERVED) + 7)
NOWHERE: Final = range(len(SERVED) + len(BUILTINS), len(METHODS))

TOPICS: Final[tuple[topics.Topic, ...]] = (
    ("sensors", "k1", "temperature"),
    ("sensors", "k2", "temperature"),
    ("sensors", "k1", "humidity"),
    ("stock", "trades"),
    ("stock", "quotes"),
    ("mail", "new"),
    ("Halle 7", "Tür", "offen"),
    ("shop", "carts"),
)


@dataclass(frozen=True, slots=True)
class FailureCase:
    """One way to fail: its row in the table of failures, and whether the method found words of its own."""

    reason: Reason
    is_application_error: bool = False

    @property
    def status(self) -> str:
        """What the caller knows."""
        if self.reason.execution is Execution.NO:
            return "not_executed"
        return "failed" if self.reason is Reason.RAISED else self.reason.value

    @property
    def text(self) -> str:
        """What is said about it."""
        return "Sold out: come back later" if self.is_application_error else self.reason.text


FAILURES: Final = (*(FailureCase(reason) for reason in Reason), FailureCase(Reason.RAISED, is_application_error=True))
BY_REASON: Final = {failed.reason: index for index, failed in enumerate(FAILURES) if not failed.is_application_error}
APPLICATION_FAILURE: Final = len(FAILURES) - 1
REFUSALS: Final = tuple(
    index
    for index, failed in enumerate(FAILURES)
    if failed.reason.execution is Execution.NO and failed.reason is not Reason.NO_SUCH_CALLBACK
)
"""Failures of calls that are never forwarded."""

# The table of failures, as DESIGN has it: UMQ, UMQ36, LRPM, MQTT's code and tag, NQ. What has no word has none here.
_FAILURE_CODES: Final[dict[Reason, tuple[int, int, str, int, str, str]]] = {
    Reason.NO_SUCH_METHOD: (7, 7, "hub.err.no_such_procedure", 404, "hub.no_such_method", "notarget"),
    Reason.NO_SUCH_CALLBACK: (8, 2, "hub.err.no_such_callback", 404, "hub.no_such_callback", "nocallback"),
    Reason.UNAVAILABLE: (11, 8, "hub.err.unavailable", 503, "hub.unavailable", "unavailable"),
    Reason.DENIED: (12, 12, "hub.err.denied", 403, "hub.denied", "denied"),
    Reason.BAD_ARGUMENTS: (13, 13, "hub.err.bad_arguments", 400, "hub.bad_arguments", "badargs"),
    Reason.OVERLOADED: (14, 14, "hub.err.busy", 429, "hub.busy", "busy"),
    Reason.TOO_LARGE: (15, 15, "hub.err.too_large", 413, "hub.too_large", "toolarge"),
    Reason.TIMEOUT: (9, 9, "hub.err.timeout", 504, "timeout", "expired"),
    Reason.LOST: (10, 10, "hub.err.lost", 502, "hub.lost", ""),
    Reason.CANCELLED: (16, 16, ".err.cancelled", 499, "hub.cancelled", "cancelled"),
    Reason.RAISED: (6, 6, "app.err.failed", 500, "", ""),
}
UMQ_CODES: Final = {reason: row[0] for reason, row in _FAILURE_CODES.items()}
UMQ36_CODES: Final = {reason: row[1] for reason, row in _FAILURE_CODES.items()}
MQTT_CODES: Final = {reason: row[3] for reason, row in _FAILURE_CODES.items()}
NQ_CODES: Final = {reason: row[5] for reason, row in _FAILURE_CODES.items()}
OWN_URI, OWN_NUMBER, OWN_TAG, OWN_ERR = "shop.err.sold_out", 422, "sold_out", "soldout"


def lrpm_uri(failed: FailureCase) -> str:
    """Return LRPM's name of a failure."""
    return OWN_URI if failed.is_application_error else _FAILURE_CODES[failed.reason][2]


def mqtt_tag(failed: FailureCase) -> str:
    """Return MQTT's tag of a failure."""
    return OWN_TAG if failed.is_application_error else _FAILURE_CODES[failed.reason][4]


def wire_code(failed: FailureCase, protocol: str) -> str | None:
    """Return the code that stands on the wire; None where there is none, as in a method's own words."""
    reason, own = failed.reason, failed.is_application_error
    match protocol:
        case "umq":
            return None if own else str(UMQ_CODES[reason])
        case "umq36":
            return None if own else str(UMQ36_CODES[reason])
        case "nq":
            return OWN_ERR if own else NQ_CODES[reason] or None
        case "mqtt-rpc":
            return str(OWN_NUMBER if own else MQTT_CODES[reason])
        case _:
            return lrpm_uri(failed)
