"""Names and bodies of the sample traffic: methods, topics, and failures as each protocol encodes them."""

from dataclasses import dataclass
from typing import Final

from fiveways.errors import Execution, Reason
from fiveways.model import names, topics

NUMBER_PLACEHOLDER: Final = "@@@@@@"
"""Placeholder for a number in a body. The number always has six digits, so lengths are constant."""

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

_METHODS_BY_SERVICE: Final = {
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
    """A method: its folded name and its form in each protocol."""

    folded: str
    umq: str
    umq36: str
    lrpm: str
    topic: str
    kind: str
    nq: str

    def written(self, protocol: str) -> str:
        """Return the name as the protocol writes it (not for MQTT)."""
        return {"umq": self.umq, "umq36": self.umq36, "nq": self.nq}.get(protocol, self.lrpm)


def _served_method(space: str, name: str) -> Method:
    folded = names.fold(f"{space}:{name}", names.UMQ)
    return Method(folded, f"{space}:{name}", f"{space}.{name}", folded, f"/{space}", name, folded.replace(".", "-"))


def _builtin_method(name: str) -> Method:
    return Method(f"hub.{name}", f"hub:{name}", f"hub.{name}", f"hub.{name}", "/hub", name, f"hub-{name}")


SERVED: Final = tuple(_served_method(space, name) for space, methods in _METHODS_BY_SERVICE.items() for name in methods)
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
    """A failure: its reason, and whether the method gave an error text of its own."""

    reason: Reason
    is_application_error: bool = False

    @property
    def status(self) -> str:
        """The outcome that the caller sees."""
        if self.reason.execution is Execution.NO:
            return "not_executed"
        return "failed" if self.reason is Reason.RAISED else self.reason.value

    @property
    def text(self) -> str:
        """The error text."""
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

# Codes of each failure: UMQ, UMQ36, LRPM, MQTT code and tag, NQ. An empty string stands for no code.
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
    """Return the LRPM URI of a failure."""
    return OWN_URI if failed.is_application_error else _FAILURE_CODES[failed.reason][2]


def mqtt_tag(failed: FailureCase) -> str:
    """Return the MQTT tag of a failure."""
    return OWN_TAG if failed.is_application_error else _FAILURE_CODES[failed.reason][4]


def wire_code(failed: FailureCase, protocol: str) -> str | None:
    """Return the code on the wire; None if there is none, as for application errors in UMQ."""
    reason, is_own = failed.reason, failed.is_application_error
    match protocol:
        case "umq":
            return None if is_own else str(UMQ_CODES[reason])
        case "umq36":
            return None if is_own else str(UMQ36_CODES[reason])
        case "nq":
            return OWN_ERR if is_own else NQ_CODES[reason] or None
        case "mqtt-rpc":
            return str(OWN_NUMBER if is_own else MQTT_CODES[reason])
        case _:
            return lrpm_uri(failed)
