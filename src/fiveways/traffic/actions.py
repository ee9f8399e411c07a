"""Actions of a client, one for each kind of step in a plan."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from fiveways.client.peer import Peer
from fiveways.errors import CallError
from fiveways.traffic.plan import Step
from fiveways.traffic.services import METHODS

CALL_TIMEOUT: Final = 10.0
"""Timeout of an ordinary call, in seconds."""
SHORT_TIMEOUT: Final = 0.02
"""Timeout that is shorter than the method takes, in seconds."""
NEWS_PATTERN: Final = "traffic.*.news"
FLOOD_TOPIC: Final = "traffic.flood"
_BULK: Final = "x" * 60_000
"""Large enough to fill the outbox of a slow consumer soon."""
_VARIANTS: Final = 5


async def run_step(step: Step, peer: Peer, others: Sequence[Peer]) -> None:
    """Run a step; exceptions of the client are its outcome."""
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
    async for _ in peer.stream(_method(step), {"count": 1 + step.number % _VARIANTS}, timeout=CALL_TIMEOUT):
        pass


async def _call_with_bad_arguments(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    await peer.call(_method(step), {"itme": step.number}, timeout=CALL_TIMEOUT)


async def _publish(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    data = {"number": step.number, "value": step.wait}
    # Every tenth value is retained.
    await peer.publish(f"traffic.{step.service}.news", data, retain=step.number % 10 == 0, timeout=CALL_TIMEOUT)


async def _publish_large(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    await peer.publish(FLOOD_TOPIC, {"number": step.number, "bulk": _BULK}, timeout=CALL_TIMEOUT)


async def _use_variable(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    name = f"shelf{step.number % _VARIANTS}"
    await peer.vars.set(name, {"number": step.number})
    await peer.vars.get(name)
    if step.number % 2:
        await peer.vars.unset(name)


async def _discover(step: Step, peer: Peer, _others: Sequence[Peer]) -> None:
    with suppress(CallError):  # the callee may have left meanwhile
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
    arguments: dict[str, object] = {"item": step.number}
    return arguments if METHODS[step.kind] not in {"build", "reserve"} else {**arguments, "wait": step.wait}


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
