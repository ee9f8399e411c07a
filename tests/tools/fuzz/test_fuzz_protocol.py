"""The short form of `make fuzz`: a few thousand damaged frames for every protocol, reproducible."""

from dataclasses import replace
from operator import attrgetter
from random import Random
from typing import NoReturn

import pytest

from fiveways.protocols import registry
from fiveways.protocols.base import ProtocolSpec
from fuzz.fuzz_target import PropertyViolated, seeds, try_input
from fuzz.mutation import mutate

INPUTS = 3000


@pytest.mark.parametrize("spec", registry.all_specs(), ids=attrgetter("name"))
def test_no_input_violates_a_property(spec: ProtocolSpec) -> None:
    random = Random(20)
    findings = []
    for _ in range(INPUTS):
        data = mutate(random, seeds(spec))
        try:
            try_input(spec, data)
        except Exception as exc:  # noqa: BLE001  any exception is a finding
            findings.append((data, exc))
    assert findings == []


def test_exception_is_detected() -> None:
    def decode(*_: object) -> NoReturn:
        raise KeyError

    with pytest.raises(KeyError):
        try_input(replace(registry.load("umq"), decode=decode), b"\0M1\nx")


def test_message_that_changes_in_a_round_trip_is_detected() -> None:
    umq = registry.load("umq")
    with pytest.raises(PropertyViolated, match="read back as"):
        try_input(replace(umq, encode=lambda _: umq.encode(umq.messages["Result"]("1"))), b"\0M1\nx")
