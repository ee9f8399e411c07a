"""How each step of a plan is done by a client."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from fiveways.client.peer import Peer
from fiveways.errors import CallError
from fiveways.traffic.plan import Step
from fiveways.traffic.services import METHODS

CALL_TIMEOUT: Final = 10.0
"""Seconds for an ordinary call."""
SHORT_TIMEOUT: Final = 0.02
"""Seconds for one whose answer takes longer."""
NEWS_PATTERN: Final = "traffic.*.news"
FLOOD_TOPIC: Final = "traffic.flood"
_BULK: Final = "x" * 60_000
"""So large that a reader who stops is full soon."""
_MOST: Final = 5


async def run_step(step: Step, peer: Peer, others: Sequence[Peer]) -> None:
    """Do it; what the client raises tells the outcome."""
    await _ACTIONS[step.kind](step, peer, others)


async def _call(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    await peer.call(_method(step), _arguments(step), timeout=CALL_TIMEOUT)


async def _call_with_progress(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    await peer.call(_method(step), _arguments(step), timeout=CALL_TIMEOUT, progress=lambda _value, _text: None)


async def _call_with_short_timeout(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    await peer.call(_method(step), _arguments(step), timeout=SHORT_TIMEOUT)


async def _call_and_cancel(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    call = peer.begin(_method(step), _arguments(step), timeout=CALL_TIMEOUT)
    await asyncio.sleep(step.wait / 3)
    call.cancel()
    await call.result()


async def _stream(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    async for _ in peer.stream(_method(step), {"count": 1 + step.number % _MOST}, timeout=CALL_TIMEOUT):
        pass


async def _call_with_bad_arguments(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    await peer.call(_method(step), {"itme": step.number}, timeout=CALL_TIMEOUT)


async def _publish(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    data = {"number": step.number, "value": step.wait}
    # Now and then one is kept for those who come later.
    await peer.publish(f"traffic.{step.service}.news", data, retain=step.number % 10 == 0, timeout=CALL_TIMEOUT)


async def _publish_large(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    await peer.publish(FLOOD_TOPIC, {"number": step.number, "bulk": _BULK}, timeout=CALL_TIMEOUT)


async def _use_variable(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    name = f"shelf{step.number % _MOST}"
    await peer.vars.set(name, {"number": step.number})
    await peer.vars.get(name)
    if step.number % 2:
        await peer.vars.unset(name)


async def _discover(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    with suppress(CallError):  # one who has left in between has no documentation
        await peer.discover(f"{step.service}.look_up")
    await peer.discover()


async def _callback(step: Step, peer: Peer, others: Sequence[Peer]) -> None:
    async def answer(text: str) -> str:
        return f"heard {text}"

    token = await peer.callback(answer)
    await others[step.number % len(others)].call(f"callback.{token}", [f"step {step.number}"], timeout=CALL_TIMEOUT)


def _method(step: Step) -> str:
    return f"{step.service}.{METHODS[step.kind]}"


def _arguments(step: Step) -> dict[str, object]:
    named: dict[str, object] = {"item": step.number}
    return named if METHODS[step.kind] not in {"build", "reserve"} else {**named, "wait": step.wait}


_ACTIONS: Final[dict[str, Callable[[Step, Peer, Sequence[Peer]], Awaitable[None]]]] = {
    "quick": _call,
    "slow": _call_with_progress,
    "failing": _call,
    "streaming": _stream,
    "busy": _call,
    "impatient": _call_with_short_timeout,
    "cancelled": _call_and_cancel,
    "unknown": _call,
    "wrong": _call_with_bad_arguments,
    "publication": _publish,
    "flood": _publish_large,
    "variable": _use_variable,
    "discovery": _discover,
    "callback": _callback,
}
