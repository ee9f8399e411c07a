"""Strategies of all messages of UMQ36 that can be encoded: all except `!`, which is only read (UMQ36-a09)."""

from hypothesis import strategies as st

from fiveways.protocols.umq36.messages import Call
from fiveways.protocols.umq_family import messages as umq
from fiveways.wire import base36

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
looks_like_syntax = st.sampled_from([":", "=", "A1:C1:x", "\n", "\0", "\ufeff", '["m",1]'])
payloads = texts | looks_like_syntax
numbers = st.integers(0, base36.MAX_U64) | st.integers(0, 40)
ids = numbers.map(base36.write)
counts = st.sampled_from([0, 0, 1, 35, 36]) | numbers


def messages() -> st.SearchStrategy[umq.UmqMessage]:
    names = payloads.filter(bool)
    return st.one_of(
        *(st.builds(kind, ids, payloads, counts) for kind in (umq.Hello, umq.Welcome, Call, umq.Result)),
        st.builds(umq.TopicUpdate, ids, payloads, counts),
        st.builds(umq.Callback, ids, ids, payloads, counts),
        st.builds(umq.SetVariable, names.filter(lambda name: "=" not in name), payloads, counts),
        st.builds(umq.UnsetVariable, names),
        st.builds(umq.Error, ids, payloads),
        st.builds(umq.TopicClose, ids),
        st.builds(umq.Unsubscribe, ids),
        st.builds(umq.Fatal, payloads),
        st.builds(umq.AttachmentError, payloads),
        st.builds(umq.Data, st.binary(max_size=40)),
    )
