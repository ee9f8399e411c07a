"""Role of a message in its call.

Incoming requests and outgoing responses are on the caller's side; outgoing requests and incoming responses are on the
callee's side.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from fiveways.pipeline.pairing.message_columns import DictionaryColumn

NONE: Final = 0
ATTEMPT: Final = 1
ANSWER: Final = 2
FORWARD: Final = 3
RETURN: Final = 4
ACCEPTED: Final = 5
CANCEL: Final = 6
PART: Final = 7
PROGRESS: Final = 8
OTHER_IN: Final = 9
OTHER_OUT: Final = 10

ROLE_NAMES: Final = (
    "",
    "attempt",
    "answer",
    "forward",
    "return",
    "accepted",
    "cancel",
    "part",
    "progress",
    "other_in",
    "other_out",
)
"""Names of the roles in tables, in the order of their numbers."""


def _flags(*chosen: int) -> npt.NDArray[np.bool_]:
    """Return an array of flags by role, true for these roles."""
    return np.isin(np.arange(len(ROLE_NAMES)), chosen)


OPENING: Final = _flags(ATTEMPT, FORWARD, OTHER_IN, OTHER_OUT)
FINAL: Final = _flags(ANSWER, RETURN)
INTERMEDIATE: Final = _flags(ACCEPTED, PART, PROGRESS)
CALLEES: Final = _flags(FORWARD, RETURN, OTHER_OUT)

_IN: Final = {"call": ATTEMPT, "cancel": CANCEL, "result": RETURN, "failure": RETURN}
_OUT: Final = {
    "call": FORWARD,
    "result": ANSWER,
    "failure": ANSWER,
    "accepted": ACCEPTED,
    "part": PART,
    "progress": PROGRESS,
}
# Requests that are not calls, by protocol. They have results and failures too, and share the identifiers of calls.
_LRPM: Final = frozenset({"callback", "publish", "subscribe", "unsubscribe"})
_OTHER_REQUESTS: Final = {
    "umq36": frozenset({"callback"}),
    "umq": frozenset({"callback", "discover"}),
    "lrpm-json": _LRPM,
    "lrpm-cbor": _LRPM,
    "mqtt-rpc": frozenset({"callback"}),
    "nq": frozenset({"callback", "event", "topic_closed"}),
}


def message_role(kind: str, direction: str, protocol: str) -> int:
    """Return the role of a message of this kind."""
    is_in = direction == "in"
    if kind in _OTHER_REQUESTS.get(protocol, ()):
        return OTHER_IN if is_in else OTHER_OUT
    return (_IN if is_in else _OUT).get(kind, NONE)


def message_roles(
    kinds: DictionaryColumn, directions: DictionaryColumn, protocols: DictionaryColumn
) -> npt.NDArray[np.int64]:
    """Return the role of each message."""
    table = np.array(
        [[[message_role(k, d, p) for p in protocols.texts] for d in directions.texts] for k in kinds.texts], np.int64
    )
    if not table.size:
        return np.zeros(len(kinds.codes), np.int64)
    flat = (kinds.codes * len(directions.texts) + directions.codes) * len(protocols.texts) + protocols.codes
    # Code -1 is null: a message without kind, direction or protocol has no role.
    known = (kinds.codes >= 0) & (directions.codes >= 0) & (protocols.codes >= 0)
    return np.where(known, table.ravel()[np.where(known, flat, 0)], NONE)
