"""Strategies of all LRPM messages, as the JSON codec carries them."""

from typing import Any

from hypothesis import strategies as st

from fiveways.protocols.lrpm import messages as lrpm
from fiveways.wire import strict_json
from fiveways.wire.payload import Json, Payload

ids = st.integers(0, 2**64 - 1) | st.sampled_from([0, 255, 256, 65535, 65536, 2**32, 2**53, 2**63 - 1, 2**63])
uris = st.text("az09_.*", max_size=30) | st.text(max_size=40)
kinds = st.sampled_from(sorted(lrpm.MESSAGES_BY_KIND)) | st.integers(0, 255)
texts = st.text(max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)


def values(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return nested values with these leaves."""
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=10
    )


def of(bodies: st.SearchStrategy[Payload], metas: st.SearchStrategy[Any]) -> st.SearchStrategy[lrpm.Message]:
    """Return messages of every kind, with these bodies and metas."""
    fields: dict[str, st.SearchStrategy[Any]] = {"body": bodies, "meta": st.just({}) | metas, "request_kind": kinds}
    fields |= dict.fromkeys(("reason", "error", "procedure", "topic"), uris)
    fields |= dict.fromkeys(("request_id", "publication_id", "subscription_id"), ids)
    known = [
        st.builds(kind, **{name: fields[name] for name in kind.__struct_fields__})
        for kind in lrpm.MESSAGES_BY_KIND.values()
    ]
    application = st.builds(lrpm.Application, st.integers(127, 255), st.lists(bodies, max_size=30).map(tuple))
    return st.one_of(*known, application)


def messages() -> st.SearchStrategy[lrpm.Message]:
    bodies = values(scalars).map(lambda value: Json(strict_json.write(value)))
    return of(bodies, st.dictionaries(texts, values(scalars), max_size=4))
