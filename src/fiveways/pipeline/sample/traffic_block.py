"""A stretch of time: how much of everything happens in it."""

from collections.abc import Callable
from typing import Final

import numpy as np

from fiveways.pipeline.sample import noise, nq_scenarios, publications, scenarios
from fiveways.pipeline.sample.calls import LRPM, MQTT, NQ, UMQS, CallGroup
from fiveways.pipeline.sample.options import SECOND, Options
from fiveways.pipeline.sample.script import Column, Script
from fiveways.pipeline.sample.vocabulary import SERVED
from fiveways.pipeline.sample.world import World

_ANY: Final = tuple(range(6))
_SIDES: Final = (*LRPM, NQ)
Scenario = Callable[[CallGroup], None]

# Each way, how often it happens in a thousand, and which protocols callers and callees must have for it.
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
    """Fill a script with nearly so many frames, and never more."""
    rng = script.rng
    if not options.plain:
        ops = options.ops
        publications.publish_events(script, world, _times(rng, max(1, frames // 90), since, until), with_ops=ops)
        noise.unreadable(script, world, _times(rng, max(1, frames // 400), since, until))
        noise.orphans(script, world, _times(rng, max(1, frames // 400), since, until), with_ops=ops)
        noise.visitors(script, world, _times(rng, max(1, frames // 400), since, until))
    ways_here = COMMON_SCENARIOS if options.plain else (*COMMON_SCENARIOS, *RARE_SCENARIOS)
    # Some of the calls tell how many frames one has, and so how many more there is room for.
    before, calls = script.count_frames(), 0
    room = _FULL * frames - world.permanent
    for share in _STEPS:
        sofar = script.count_frames()
        each = (sofar - before) / calls if calls else _FRAMES_OF_A_CALL
        count = max(0, int(share * (room - sofar) / each))
        calls += count
        _run_scenarios(_calls(options, world, script, count, since, until), ways_here)


def _times(rng: np.random.Generator, count: int, since: int, until: int) -> Column:
    return np.sort(rng.integers(since, until, count))


def _calls(options: Options, world: World, script: Script, count: int, since: int, until: int) -> CallGroup:
    """Draw calls: some methods are asked for more than others, some are slow, and some come in bursts."""
    rng = script.rng
    at = rng.integers(since, until, count)
    bursts = np.sort(rng.integers(since, until, max(1, count // 2000)))
    in_burst = rng.random(count) < _BURSTS
    at = np.where(in_burst, rng.choice(bursts, count) + rng.integers(0, SECOND // 20, count), at)
    weights = 1 / np.arange(1, len(SERVED) + 1) ** 0.7
    method = rng.choice(len(SERVED), count, p=weights / weights.sum())
    # Half of a millisecond for the quickest, a third of a second for the slowest, and a long tail for all.
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
    """Send each call on one of the ways that its protocols allow."""
    chance = calls.script.rng.integers(0, 1000, len(calls))
    caller, callee = calls.caller_protocol, calls.callee_protocol
    left = np.ones(len(calls), np.bool_)
    low = 0
    for way, often, callers, callees in table:
        mine = (chance >= low) & (chance < low + often) & np.isin(caller, callers) & np.isin(callee, callees)
        low += often
        left &= ~mine
        if mine.any():
            way(calls.select(mine))
    scenarios.plain(calls.select(left))
