"""Traffic beside the scenarios: unreadable frames, orphaned responses, short-lived sessions and pings."""

from typing import Final

import numpy as np

from fiveways.errors import Reason
from tests.support.sample_captures.calls import CallGroup
from tests.support.sample_captures.options import ENCODINGS
from tests.support.sample_captures.scenarios import built_in
from tests.support.sample_captures.script import CALL_OP, CALLEE, CALLER, NO_OP, Column, LineKind, Script
from tests.support.sample_captures.vocabulary import (
    APPLICATION_FAILURE,
    BY_REASON,
    HUB_REGISTER,
    HUB_SUBSCRIBE,
    PLAIN_BUILTINS,
)
from tests.support.sample_captures.world import World

# Payloads that violate their protocol, and whether they are text frames.
UNREADABLE: Final[dict[str, tuple[tuple[bytes, bool], ...]]] = {
    "umq36": ((b"Q1:what", True), (b"Cabc:[1]", True), (b"no colon", True), (b"C1:\xff\xfe", True), (b"", True)),
    "umq": ((b"Qx\nwhat", True), (b"M\nadd\n1", True), (b"", True), (b"R1\n\xff", True), (b"Axx\nM1\nadd\n", True)),
    "lrpm-json": (
        (b"[40,1,", True),
        (b'[99,1,"a",null,{}]', True),
        (b'{"not":"an array"}', True),
        (b"[41,true,null,{}]", True),
        (b"\x84\x18\x29\x19\x01\x00\xf6\xa0", False),
    ),
    "nq": ((b"nothing", True), (b'{"t":"x","r":', True), (b"17", True), (b'{"t":"x",\xff', True), (b"", True)),
    "lrpm-cbor": (
        (b"\x85\x18\x28\x19", False),
        (b"\xff", False),
        (b"\x84\x18\x63\x01\xf6\xa0", False),
        (b"[41,300,null,{}]", True),
        (b"\x84\x18\x29\x19\x01\x00\xf6\xa0\x00", False),
    ),
    "mqtt-rpc": (
        (b"\xff\xff\xff\xff", False),
        (b"\x08", False),
        (b"\x08\x07\x12\x7f\x0a", False),
        (b"some text", True),
        (b"\x08\x07\x12\x02\xff\xff", False),
    ),
}
VARIANTS: Final = 5
PAYLOAD_OMITTED, PAYLOAD_TRUNCATED = VARIANTS, VARIANTS + 1
"""Two more variants: the capture policy omits the payload, or truncates it to one byte."""
CLOSE_REASONS: Final = ("left", "error", "idle", "going away")
DENY_REASONS: Final = ("denied", "bad token", "origin")
DROP_REASON: Final = "full"


def unreadable(script: Script, world: World, at: Column) -> None:
    """Add frames that end in the table quarantine."""
    session = script.rng.integers(0, world.permanent, len(at))
    detail = script.rng.integers(0, VARIANTS + 2, len(at))
    script.add(LineKind.RAW, at, session=session, detail=detail, out=script.rng.random(len(at)) < 0.2, unread=True)


def orphans(script: Script, world: World, at: Column, *, with_ops: bool) -> None:
    """Add responses with unused ids on either leg; some name an operation that was never started."""
    count = len(at)
    session = script.rng.integers(0, world.permanent, count)
    call = script.operations(count)
    out = call % 2 == 0
    kinds = np.where(call % 3 == 0, int(LineKind.FAILURE), int(LineKind.RESULT))
    for kind in (LineKind.RESULT, LineKind.FAILURE):
        rows = np.flatnonzero(kinds == kind)
        claims = np.where(call[rows] % 5 == 0, CALL_OP, NO_OP) if with_ops else NO_OP
        # An application error on the callee's leg, an error of the hub on the caller's leg.
        detail = np.where(out[rows], BY_REASON[Reason.DENIED], APPLICATION_FAILURE)
        script.add(
            kind,
            at[rows],
            call=call[rows],
            leg=np.where(out[rows], CALLER, CALLEE),
            num=call[rows] * 4,
            aux=call[rows] * 4,
            session=session[rows],
            out=out[rows],
            op=claims,
            orphan=True,
            detail=detail,
            method=0,
        )


def open_permanent_sessions(script: Script, world: World, at: int) -> None:
    """Open the permanent sessions: handshake, registration and subscription."""
    sessions = np.arange(world.permanent, dtype=np.int32)
    opened = at + sessions.astype(np.int64) * 3_000_000
    open_sessions(script, world, sessions, opened)
    with_handshake = np.array([n for n in sessions if ENCODINGS[world.protocols[n]] != "mqtt-rpc"], np.int32)
    for method, wait in ((HUB_REGISTER, 1_000_000), (HUB_SUBSCRIBE, 1_500_000)):
        _call_builtin(
            script, world, with_handshake, opened[with_handshake] + wait, np.full(len(with_handshake), method)
        )


def open_sessions(script: Script, world: World, sessions: Column, at: Column) -> None:
    """Open sessions, with a handshake in the protocols that have one."""
    script.add(LineKind.OPEN, at, session=sessions)
    protocols = world.protocol_of(sessions)
    for what, wait, without in (
        (LineKind.HELLO, 100_000, ("nq", "mqtt-rpc")),
        (LineKind.WELCOME, 150_000, ("mqtt-rpc",)),
    ):
        talking = ~np.isin(protocols, [ENCODINGS.index(each) for each in without])
        script.add(what, at[talking] + wait, session=sessions[talking], out=what is LineKind.WELCOME)
    umqs = np.isin(protocols, [ENCODINGS.index(each) for each in ("umq", "umq36")])
    script.add(LineKind.SET, at[umqs] + 200_000, session=sessions[umqs])


def close_sessions(script: Script, sessions: Column, at: Column) -> None:
    """Close sessions."""
    script.add(LineKind.CLOSE, at, session=sessions, detail=script.rng.integers(0, len(CLOSE_REASONS), len(at)))


def visitors(script: Script, world: World, at: Column) -> None:
    """Add short sessions with two calls of built-in methods; admission denies every fifth."""
    protocols = [each for each in world.encodings if each not in {"mqtt-rpc", "nq"}]
    if not protocols:
        return
    names = [f"guest{n % 7}" if n % 3 else None for n in range(len(at))]
    sessions = np.array([world.add_session(protocols[n % len(protocols)], names[n]) for n in range(len(at))], np.int32)
    denied = np.arange(len(at)) % 5 == 4
    script.add(LineKind.OPEN, at[denied], session=sessions[denied])
    reasons = script.rng.integers(0, len(DENY_REASONS), denied.sum())
    script.add(LineKind.DENY, at[denied] + 50_000, session=sessions[denied], detail=reasons, op=NO_OP)
    close_sessions(script, sessions[denied], at[denied] + 60_000)
    sessions, at = sessions[~denied], at[~denied]
    open_sessions(script, world, sessions, at)
    for wait in (5_000_000, 9_000_000):
        _call_builtin(script, world, sessions, at + wait, script.rng.choice(PLAIN_BUILTINS, len(at)))
    stayed = np.arange(len(at)) % 20 == 0
    close_sessions(script, sessions[~stayed], at[~stayed] + 20_000_000)


def pings(script: Script, world: World, at: Column, *, answered: bool) -> None:
    """Add calls of built-in methods on permanent sessions."""
    _call_builtin(
        script, world, world.choose_callers(len(at), script.rng), at, np.full(len(at), PLAIN_BUILTINS[0]), answered
    )


def _call_builtin(
    script: Script, world: World, sessions: Column, at: Column, method: Column, answered: bool = True
) -> None:
    call = script.operations(len(at))
    nothing = np.zeros(len(at), np.int64)
    built_in(
        CallGroup(script, world, call, at, sessions, sessions, method, call * 4, nothing, nothing), answered=answered
    )
