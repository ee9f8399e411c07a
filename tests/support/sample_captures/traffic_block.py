"""The traffic of one block: how often each scenario occurs."""

from collections.abc import Callable
from typing import Final

import numpy as np

from tests.support.sample_captures import noise, nq_scenarios, publications, scenarios
from tests.support.sample_captures.calls import LRPM, MQTT, NQ, UMQS, CallGroup
from tests.support.sample_captures.options import SECOND, Options
from tests.support.sample_captures.script import Column, Script
from tests.support.sample_captures.vocabulary import SERVED
from tests.support.sample_captures.world import World

_ANY: Final = tuple(range(6))
_SIDES: Final = (*LRPM, NQ)
Scenario = Callable[[CallGroup], None]

# Scenario, occurrences per 1,000 calls, and the protocols of callers and callees that it needs.
COMMON_SCENARIOS: Final[tuple[tuple[Scenario, int, tuple[int, ...], tuple[int, ...]], ...]] = (
    (scenarios.raised, 30, _ANY, _ANY),
    (scenarios.refused, 25, _ANY, _ANY),
    (scenarios.timed_out, 10, _ANY, _ANY),
    (scenarios.lost, 8, _ANY, _ANY),
    (scenarios.cancelled, 12, _SIDES, _ANY),
    (scenarios.unanswered, 6, _ANY, _ANY),
    (nq_scenarios.repeated, 40, (NQ,), _ANY),
    (nq_scenarios.answered_again, 30, (NQ,), _ANY),
    (nq_scenarios.useless, 20, (NQ,), _ANY),
    (scenarios.reused, 40, (*UMQS, *LRPM), _ANY),
)
RARE_SCENARIOS: Final = (
    (nq_scenarios.batched, 60, (NQ,), _ANY),
    (nq_scenarios.in_parts, 10, (NQ,), _ANY),
    (scenarios.streamed, 30, _ANY, (*LRPM, NQ, MQTT)),
    (scenarios.progressing, 30, _SIDES, _SIDES),
    (scenarios.carried, 20, UMQS, UMQS),
    (scenarios.called_back, 20, UMQS, UMQS),
    (scenarios.discovered, 10, (UMQS[0],), _ANY),
    (scenarios.overlapped, 20, UMQS, _ANY),
    (scenarios.declined, 20, _ANY, (UMQS[0],)),
    (scenarios.shouted, 10, (UMQS[1],), _ANY),
    (nq_scenarios.miscounted, 20, (NQ,), _ANY),
)
_FRAMES_OF_A_CALL: Final = 5.2
_FULL: Final = 0.99
_STEPS: Final = (0.1, 0.7, 0.9)
_BURSTS: Final = 0.2


def plan_block(options: Options, world: World, script: Script, since: int, until: int, frames: int) -> None:
    """Fill a script with nearly the given number of frames, never more."""
    rng = script.rng
    if not options.plain:
        ops = options.ops
        publications.publish_events(script, world, _times(rng, max(1, frames // 90), since, until), with_ops=ops)
        noise.unreadable(script, world, _times(rng, max(1, frames // 400), since, until))
        noise.orphans(script, world, _times(rng, max(1, frames // 400), since, until), with_ops=ops)
        noise.visitors(script, world, _times(rng, max(1, frames // 400), since, until))
    table = COMMON_SCENARIOS if options.plain else (*COMMON_SCENARIOS, *RARE_SCENARIOS)
    # The first calls measure the frames per call, which gives the number of calls that still fit.
    before, calls = script.count_frames(), 0
    room = _FULL * frames - world.permanent
    for share in _STEPS:
        planned = script.count_frames()
        frames_per_call = (planned - before) / calls if calls else _FRAMES_OF_A_CALL
        count = max(0, int(share * (room - planned) / frames_per_call))
        calls += count
        _run_scenarios(_calls(options, world, script, count, since, until), table)


def _times(rng: np.random.Generator, count: int, since: int, until: int) -> Column:
    return np.sort(rng.integers(since, until, count))


def _calls(options: Options, world: World, script: Script, count: int, since: int, until: int) -> CallGroup:
    """Draw calls: some methods are called more often, some are slow, and some calls come in bursts."""
    rng = script.rng
    at = rng.integers(since, until, count)
    bursts = np.sort(rng.integers(since, until, max(1, count // 2000)))
    in_burst = rng.random(count) < _BURSTS
    at = np.where(in_burst, rng.choice(bursts, count) + rng.integers(0, SECOND // 20, count), at)
    weights = 1 / np.arange(1, len(SERVED) + 1) ** 0.7
    method = rng.choice(len(SERVED), count, p=weights / weights.sum())
    # From 0.5 ms for the fastest method to 350 ms for the slowest, with a long tail for all.
    typical = 0.5e6 * 700 ** (np.arange(len(SERVED)) * 17 % len(SERVED) / len(SERVED))
    duration = (typical[method] * rng.lognormal(0, 0.5, count)).astype(np.int64)
    call = script.operations(count)
    odd = (
        np.zeros(count, np.int8) if options.plain else np.where(rng.random(count) < 0.03, rng.integers(1, 4, count), 0)
    )
    caller = world.choose_callers(count, rng)
    return CallGroup(
        script, world, call, at, caller, world.choose_callees(method, rng), method, call * 4, duration, odd
    )


def _run_scenarios(calls: CallGroup, table: tuple[tuple[Scenario, int, tuple[int, ...], tuple[int, ...]], ...]) -> None:
    """Plan each call by one of the scenarios that its protocols allow."""
    chance = calls.script.rng.integers(0, 1000, len(calls))
    caller, callee = calls.caller_protocol, calls.callee_protocol
    left = np.ones(len(calls), np.bool_)
    low = 0
    for scenario, per_thousand, callers, callees in table:
        mask = (chance >= low) & (chance < low + per_thousand) & np.isin(caller, callers) & np.isin(callee, callees)
        low += per_thousand
        left &= ~mask
        if mask.any():
            scenario(calls.select(mask))
    scenarios.plain(calls.select(left))
