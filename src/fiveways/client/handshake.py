"""Who we are, in the words of a handshake."""

import hmac
from hashlib import blake2b

from fiveways.client.settings import Settings
from fiveways.errors import ConnectionLost, FivewaysError, Refused
from fiveways.model.messages import Challenge, Hello, Proof, Welcome
from fiveways.protocols.base import ProtocolSpec
from fiveways.wire import jsontext
from fiveways.wire.payload import Payload, Text, Value

METHOD = "hmac-sha256"


class BadLogin(FivewaysError, ValueError):
    """Credentials that cannot be used as they were given."""


def check(settings: Settings, spec: ProtocolSpec) -> None:
    """Refuse, before anything is sent, what the protocol has no way to say."""
    if bool(settings.identity) != bool(settings.secret):
        raise BadLogin("`identity` and `secret` belong together")
    if settings.identity and settings.token:
        raise BadLogin("give `token`, or `identity` and `secret`, not both")
    if settings.identity and not spec.challenges:
        raise BadLogin(f"{spec.name} has no challenge for `identity` and `secret`: use `token`, or lrpm")
    if settings.token and settings.address.is_zmq:
        raise BadLogin("a hub takes no token over ZeroMQ, which is for its own machine: use nq+ws or nq+http")


def hello(settings: Settings, spec: ProtocolSpec) -> Hello:
    """Return our first word."""
    if settings.identity:
        return Hello(Value({"identity": settings.identity}))
    token = settings.token
    if not token:
        return Hello()
    if spec.challenges or jsontext.from_text(token) is not None:
        # Bare, a token such as 12345 would be read as a number.
        return Hello(Value({"token": token}))
    return Hello(Text(token))


def proof(settings: Settings, challenge: Challenge) -> Proof:
    """Return the answer to a challenge.

    Raises:
        Refused: we have no secret to prove anything with.
        ConnectionLost: the challenge is none that we understand.
    """
    if not settings.secret:
        raise Refused("the hub asks for a proof of who we are: give `identity` and `secret`")
    match _value(challenge.body):
        case {"nonce": str(nonce), "method": method} if method == METHOD:
            mac = hmac.new(settings.secret.encode(), nonce.encode(errors="replace"), "sha256").hexdigest()
            return Proof(Value({"mac": mac}))
        case _:
            raise ConnectionLost(f"the hub asks for a proof other than {METHOD}, the only one that we know")


def session_of(welcome: Welcome) -> str:
    """Return the name that the hub gave our session; empty if it told none."""
    match _value(welcome.body):
        case {"session": str(session)}:
            return session
        case _:
            return ""


def public_name(peer: str) -> str:
    """Return what a hub calls a peer before others, who must not come back in its place."""
    return blake2b(peer.encode(), digest_size=6).hexdigest()


def _value(body: Payload) -> object:
    try:
        return body.value()
    except FivewaysError:
        return None
