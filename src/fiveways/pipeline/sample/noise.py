"""What should not happen: frames that nobody can read, answers that nobody asked for; and visitors, who may."""

from typing import Final

import numpy as np

from fiveways.errors import Reason
from fiveways.pipeline.sample.calls import CallGroup
from fiveways.pipeline.sample.options import ENCODINGS
from fiveways.pipeline.sample.scenarios import built_in
from fiveways.pipeline.sample.script import CALL_OP, CALLEE, CALLER, NO_OP, Column, LineKind, Script
from fiveways.pipeline.sample.vocabulary import (
    APPLICATION_FAILURE,
    BY_REASON,
    HUB_REGISTER,
    HUB_SUBSCRIBE,
    PLAIN_BUILTINS,
)
from fiveways.pipeline.sample.world import World

# Bytes that break the rules of their protocol, and whether they come as text.
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
"""Two more: a frame whose payload the policy left out, and one of which it left one byte."""
CLOSE_REASONS: Final = ("left", "error", "idle", "going away")
DENY_REASONS: Final = ("denied", "bad token", "origin")
DROP_REASON: Final = "full"


def unreadable(script: Script, world: World, at: Column) -> None:
    """Frames that end in quarantine."""
    session = script.rng.integers(0, world.permanent, len(at))
    detail = script.rng.integers(0, VARIANTS + 2, len(at))
    script.add(LineKind.RAW, at, session=session, detail=detail, out=script.rng.random(len(at)) < 0.2, unread=True)


def orphans(script: Script, world: World, at: Column, *, with_ops: bool) -> None:
    """Answers under ids that were never used, on either leg; some claim an operation that nobody began."""
    count = len(at)
    session = script.rng.integers(0, world.permanent, count)
    call = script.operations(count)
    out = call % 2 == 0
    what = np.where(call % 3 == 0, int(LineKind.FAILURE), int(LineKind.RESULT))
    for kind in (LineKind.RESULT, LineKind.FAILURE):
        mine = np.flatnonzero(what == kind)
        claims = np.where(call[mine] % 5 == 0, CALL_OP, NO_OP) if with_ops else NO_OP
        # A callee's own words on its leg; the hub's about a call that was lost on the caller's.
        detail = np.where(out[mine], BY_REASON[Reason.DENIED], APPLICATION_FAILURE)
        script.add(
            kind,
            at[mine],
            call=call[mine],
            leg=np.where(out[mine], CALLER, CALLEE),
            num=call[mine] * 4,
            aux=call[mine] * 4,
            session=session[mine],
            out=out[mine],
            op=claims,
            orphan=True,
            detail=detail,
            method=0,
        )


def open_permanent_sessions(script: Script, world: World, at: int) -> None:
    """Those who stay come, say hello, and offer what they have."""
    sessions = np.arange(world.permanent, dtype=np.int32)
    opened = at + sessions.astype(np.int64) * 3_000_000
    open_sessions(script, world, sessions, opened)
    some = np.array([n for n in sessions if ENCODINGS[world.protocols[n]] != "mqtt-rpc"], np.int32)
    for method, wait in ((HUB_REGISTER, 1_000_000), (HUB_SUBSCRIBE, 1_500_000)):
        _asked(script, world, some, opened[some] + wait, np.full(len(some), method))


def open_sessions(script: Script, world: World, sessions: Column, at: Column) -> None:
    """Open links, and shake hands where the protocol does."""
    script.add(LineKind.OPEN, at, session=sessions)
    protocols = world.protocol_of(sessions)
    for what, wait, silent in (
        (LineKind.HELLO, 100_000, ("nq", "mqtt-rpc")),
        (LineKind.WELCOME, 150_000, ("mqtt-rpc",)),
    ):
        talking = ~np.isin(protocols, [ENCODINGS.index(each) for each in silent])
        script.add(what, at[talking] + wait, session=sessions[talking], out=what is LineKind.WELCOME)
    umqs = np.isin(protocols, [ENCODINGS.index(each) for each in ("umq", "umq36")])
    script.add(LineKind.SET, at[umqs] + 200_000, session=sessions[umqs])


def close_sessions(script: Script, sessions: Column, at: Column) -> None:
    """Close links."""
    script.add(LineKind.CLOSE, at, session=sessions, detail=script.rng.integers(0, len(CLOSE_REASONS), len(at)))


def visitors(script: Script, world: World, at: Column) -> None:
    """Links that come for a moment: two calls of the hub's own methods, and off again; one in five is not let in."""
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
        _asked(script, world, sessions, at + wait, script.rng.choice(PLAIN_BUILTINS, len(at)))
    stayed = np.arange(len(at)) % 20 == 0
    close_sessions(script, sessions[~stayed], at[~stayed] + 20_000_000)


def pings(script: Script, world: World, at: Column, *, answered: bool) -> None:
    """Calls of the hub's own methods by those who are there anyway."""
    _asked(script, world, world.choose_callers(len(at), script.rng), at, np.full(len(at), PLAIN_BUILTINS[0]), answered)


def _asked(script: Script, world: World, sessions: Column, at: Column, method: Column, answered: bool = True) -> None:
    call = script.operations(len(at))
    nothing = np.zeros(len(at), np.int64)
    built_in(
        CallGroup(script, world, call, at, sessions, sessions, method, call * 4, nothing, nothing), answered=answered
    )
