"""Strategies of all messages of UMQ 1.0.0."""

from hypothesis import strategies as st

from fiveways.protocols.umq.messages import Call, Discover
from fiveways.protocols.umq_family import messages as umq

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
looks_like_syntax = st.sampled_from(
    ["\n", "\n\n", "A1\nM1\nx\n", "E\n", "7 x", "-", "Mlogin\nRAccount:\n", "Dtext", "\0", "\ufeff"]
)
payloads = texts | looks_like_syntax
lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=40) | st.just("A1")
ids = lines.filter(bool) | st.integers(0, 40).map(str) | st.just("x" * 255)
variables = st.text(st.characters(exclude_categories=["Cs"], min_codepoint=32), min_size=1, max_size=40)
counts = st.sampled_from([0, 0, 1, 10, 999_999_999])


def messages() -> st.SearchStrategy[umq.UmqMessage]:
    id_and_text = (umq.Hello, umq.Welcome, umq.Result, umq.Error, umq.NotRun, umq.TopicUpdate, Discover)
    return st.one_of(
        *(st.builds(kind, ids, payloads, counts) for kind in id_and_text),
        *(st.builds(kind, ids, lines, payloads, counts) for kind in (Call, umq.Callback)),
        *(st.builds(kind, ids, counts) for kind in (umq.TopicClose, umq.Unsubscribe)),
        *(st.builds(kind, payloads, counts) for kind in (umq.Fatal, umq.AttachmentError)),
        st.builds(umq.SetVariable, variables, payloads, counts),
        st.builds(umq.UnsetVariable, variables, counts),
        st.builds(umq.Data, st.binary(max_size=40)),
    )
