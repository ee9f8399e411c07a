import pytest

from fiveways.protocols import registry


def test_a_line_of_the_registry_must_name_a_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.PROTOCOLS, "wrong", "fiveways.errors:Fault")
    with pytest.raises(TypeError, match="is no ProtocolSpec"):
        registry.load("wrong")


def test_every_protocol_carries_its_own_name() -> None:
    assert [spec.name for spec in registry.all_specs()] == list(registry.PROTOCOLS)
