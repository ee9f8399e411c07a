"""Strategies of all NQ messages."""

from typing import Any

from hypothesis import strategies as st

from fiveways.protocols.nq import messages as nq
from fiveways.protocols.nq.errors import ErrorObject
from fiveways.wire import strict_json
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Json

texts = st.text(max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=10
)
bodies = values.map(lambda value: Json(strict_json.write(value)))
ids = st.text(min_size=1, max_size=30) | st.integers(1, 2**53).map(str)
several = st.lists(ids, min_size=1, max_size=4).map(tuple)
targets = (
    st.just("") | st.from_regex(r"[A-Za-z0-9_.:/-]{1,30}", fullmatch=True) | st.sampled_from(["ďábel", "名前", '"'])
)
numbers = st.integers(1, 2**53)
reserved = set("acdefiknoprstv")
extras = st.none() | st.dictionaries(
    texts.filter(lambda key: key not in reserved)
    | st.sampled_from(["topic", "missed", "attachments", "traceparent", "redelivered", "q"]),
    values.map(lambda value: strict_json.write(value).decode()),
    min_size=1,
    max_size=4,
)
verbose = st.booleans() | st.text(min_size=1, max_size=9)
UNREADABLE = [
    b'{"r":0}',
    b"7",
    b'{"c":2,"r":"1"}',
    b'{"k":"x","a":"1","i":["2",3]}',
    b"{}",
    b'{"r":1,"i":2}',
    b'{"t":"a b","r":1}',
]


def errors(types: list[str], fatal: bool) -> st.SearchStrategy[ErrorObject]:
    return st.builds(
        ErrorObject, st.sampled_from(types), st.just(fatal), *[texts] * 4, st.lists(texts, max_size=3).map(tuple)
    )


def messages() -> st.SearchStrategy[nq.Message]:
    about = ["", "local", "remote", "app", "tmp", "warn", "note", "debug"]
    fatal, harmless = errors(about, fatal=True), errors(about, fatal=False)
    system, farewell = errors(["sys"], fatal=False), errors(["sys"], fatal=True)
    maybe = st.none() | bodies
    # An element with or without the number of remaining elements; an end without an element.
    parts: list[tuple[Any, ...]] = [
        (bodies, numbers, st.none() | numbers | st.just(0)),
        (st.none(), numbers, st.just(0)),
    ]
    parts.append((st.none(), st.just(0), st.just(0)))
    kinds: list[st.SearchStrategy[nq.Message]] = [
        st.builds(nq.Request, targets, ids, maybe, verbose, texts, extras),
        *(st.builds(nq.RequestPart, targets, ids, d, n, f, verbose, texts, extras) for d, n, f in parts),
        st.builds(nq.Poll, targets, ids, extras),
        st.builds(nq.Acceptance, ids, several, extras),
        st.builds(nq.Answer, ids, several, bodies, extras),
        *(st.builds(nq.AnswerPart, ids, several, d, st.none(), n, f, extras) for d, n, f in parts),
        st.builds(nq.AnswerPart, ids, several, maybe, fatal, numbers, st.just(0), extras),
        st.builds(nq.ErrorAnswer, ids, several, maybe, fatal, extras),
        st.builds(nq.Note, ids, several, maybe, harmless, extras),
        st.builds(nq.PollReply, ids, several, system | farewell, extras),
        st.builds(nq.Ack, several, extras),
        st.builds(nq.Next, st.just("") | ids, several, numbers, extras),
        st.builds(nq.Missing, st.just("") | ids, several, st.lists(numbers, min_size=1, max_size=5).map(tuple), extras),
        st.builds(nq.BackMessage, several, bodies, st.none() | harmless | system, extras),
        st.builds(nq.BackMessage, several, st.none(), harmless | system, extras),
        st.builds(nq.CancelRequest, targets, several, fatal | farewell, extras),
        st.builds(nq.SystemNote, fatal | harmless | system, extras),
        st.builds(nq.Farewell, farewell, extras),
        st.just(nq.Idle()),
        st.sampled_from(UNREADABLE).map(bad),
    ]
    return st.one_of(kinds)


def bad(element: bytes) -> nq.Message:
    """Return the message for an unreadable element of a batch."""
    (message,) = nq.decode(Packet(b"[%b]" % element), Limits())
    return message
