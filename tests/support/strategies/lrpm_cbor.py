"""Strategies of all LRPM messages, as the CBOR codec carries them."""

import cbor2
from hypothesis import strategies as st

from fiveways.protocols.lrpm import messages as lrpm
from fiveways.wire.payload import Cbor
from tests.support.strategies import lrpm_json as either

scalars = either.scalars | st.binary(max_size=40) | st.just(float("inf")) | st.integers(2**64, 2**80)


def messages() -> st.SearchStrategy[lrpm.Message]:
    bodies = either.values(scalars).map(lambda value: Cbor(cbor2.dumps(value)))
    return either.of(bodies, st.dictionaries(either.texts, either.values(scalars), max_size=4))
