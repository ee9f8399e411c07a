"""The clock at the start, compared with the mark of the last write."""

from random import Random

import pytest

from fiveways.hub.core import Hub
from fiveways.runtime import clock_guard
from fiveways.runtime.clock import steady_clock
from fiveways.runtime.clock_guard import ClockGuard
from fiveways.runtime.exchange import Exchange
from fiveways.wire.limits import Limits
from tests.support.running import async_test

DAY = 86_400.0
BEGAN = 1e9


class Machine:
    """The clocks of a machine."""

    def __init__(self) -> None:
        self.wall, self.steady, self.boot = BEGAN, 100.0, "first"

    def sleep(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def guard(self, mark: str = "") -> ClockGuard:
        """The clock guard of a hub that starts now."""
        found = ClockGuard(DAY, Exchange(Hub(Random(1), Limits(), is_durable=True)), None, lambda: self.wall)
        found.resume(mark)
        found.stop()
        return found


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine()
    monkeypatch.setattr(clock_guard, "boot_clock", lambda: found.steady)
    monkeypatch.setattr(clock_guard, "boot_id", lambda: found.boot)
    return found


@async_test
async def test_downtime_of_the_hub_alone_is_no_jump(machine: Machine) -> None:
    mark = machine.guard().mark()
    machine.sleep(8 * DAY)
    assert machine.guard(mark).problem() == ""
    machine.wall += 2 * DAY
    assert "2 days" in machine.guard(mark).problem()


@async_test
async def test_long_downtime_of_the_machine_is_a_jump(machine: Machine) -> None:
    mark = machine.guard().mark()
    machine.boot, machine.steady = "second", 5.0
    machine.wall += 0.9 * DAY
    assert machine.guard(mark).problem() == ""
    machine.wall += 8 * DAY
    held = machine.guard(mark)
    assert "8 days" in held.problem()
    machine.sleep(60.0)
    assert held.now() == pytest.approx(BEGAN + 60.0, abs=1)
    assert "8 days" in machine.guard(held.mark()).problem()
    assert held.confirm()["confirmed"] is True
    assert machine.guard(held.mark()).problem() == ""


@async_test
async def test_new_records_get_the_later_time(machine: Machine) -> None:
    mark = machine.guard().mark()
    for ahead in (8 * DAY, -8 * DAY):
        machine.wall = BEGAN + ahead
        held = machine.guard(mark)
        storage = held._exchange.hub.store_status
        assert storage.epoch + steady_clock() == pytest.approx(BEGAN, abs=1000)
        held.allow_late_times()
        assert storage.epoch + steady_clock() == pytest.approx(BEGAN + max(ahead, 0.0), abs=1000)


@pytest.mark.parametrize("mark", ["", "nonsense", "[]", "null"])
@async_test
async def test_start_without_a_readable_mark_trusts_the_clock(machine: Machine, mark: str) -> None:
    assert machine.guard(mark).problem() == ""
