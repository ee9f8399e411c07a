"""Fuzzing of one protocol with atheris, guided by code coverage; `fuzz_protocol` starts it."""

import sys

import atheris

with atheris.instrument_imports(include=["fiveways"]):
    from fiveways.protocols import registry

    spec = registry.load(sys.argv.pop(1))
    from fuzz.fuzz_target import try_input


def test_one_input(data: bytes) -> None:
    """Try one input; the engine calls this in a loop."""
    try_input(spec, data)


atheris.Setup(sys.argv, test_one_input)
atheris.Fuzz()
