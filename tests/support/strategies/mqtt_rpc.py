"""Strategies of all messages of RPC over MQTT."""

from hypothesis import strategies as st

from fiveways.protocols.mqtt_rpc.messages import ErrorResponse, Message, Request, Response

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
topics = st.sampled_from(["/my-cool-service", "service", "/a.b", "/", ""]) | texts
ids = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 127, 128, 2**32, 2**63, 2**64 - 1])
uint32s = st.integers(0, 2**32 - 1) | st.integers(0, 300)
values = st.binary(max_size=40) | st.binary(min_size=120, max_size=140)
no_body = st.just(("", None))
bodies = st.tuples(st.sampled_from(["SayHello", "type.googleapis.com/a/SayHello", ""]) | texts, values) | no_body
units = st.integers(0, 5) | st.integers(-(2**31), 2**31 - 1)


def with_body(kind: type[Message], *rest: st.SearchStrategy[object]) -> st.SearchStrategy[Message]:
    return st.tuples(topics, ids, bodies, *rest).map(lambda parts: kind(*parts[:2], *parts[2], *parts[3:]))


def messages() -> st.SearchStrategy[Message]:
    return st.one_of(
        with_body(Request, st.booleans(), uint32s, units),
        with_body(Response, st.booleans()),
        with_body(ErrorResponse, uint32s, texts, texts, uint32s, st.booleans()),
    )
