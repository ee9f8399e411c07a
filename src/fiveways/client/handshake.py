"""Who we are, in the words of a handshake."""

import hmac
from hashlib import blake2b

from fiveways.client.settings import ClientSettings
from fiveways.errors import ConnectionLost, FivewaysError, Refused
from fiveways.model.messages import Challenge, Hello, Proof, Welcome
from fiveways.protocols.base import ProtocolSpec
from fiveways.wire import strict_json
from fiveways.wire.payload import Payload, Text, Value

PROOF_METHOD = "hmac-sha256"


class BadCredentials(FivewaysError, ValueError):
    """Credentials that cannot be used as they were given."""


def check_credentials(settings: ClientSettings, spec: ProtocolSpec) -> None:
    """Refuse, before anything is sent, what the protocol has no way to say."""
    if bool(settings.identity) != bool(settings.secret):
        raise BadCredentials("`identity` and `secret` belong together")
    if settings.identity and settings.token:
        raise BadCredentials("give `token`, or `identity` and `secret`, not both")
    if settings.identity and not spec.supports_challenge:
        raise BadCredentials(f"{spec.name} has no challenge for `identity` and `secret`: use `token`, or lrpm")
    if settings.token and settings.address.is_zmq:
        raise BadCredentials("a hub takes no token over ZeroMQ, which is for its own machine: use nq+ws or nq+http")


def hello(settings: ClientSettings, spec: ProtocolSpec) -> Hello:
    """Return our first word."""
    if settings.identity:
        return Hello(Value({"identity": settings.identity}))
    token = settings.token
    if not token:
        return Hello()
    if spec.supports_challenge or strict_json.encode_if_json(token) is not None:
        # Bare, a token such as 12345 would be read as a number.
        return Hello(Value({"token": token}))
    return Hello(Text(token))


def proof(settings: ClientSettings, challenge: Challenge) -> Proof:
    """Return the answer to a challenge.

    Raises:
        Refused: we have no secret to prove anything with.
        ConnectionLost: the challenge is none that we understand.
    """
    if not settings.secret:
        raise Refused("the hub asks for a proof of who we are: give `identity` and `secret`")
    match _decode_body(challenge.body):
        case {"nonce": str(nonce), "method": method} if method == PROOF_METHOD:
            mac = hmac.new(settings.secret.encode(), nonce.encode(errors="replace"), "sha256").hexdigest()
            return Proof(Value({"mac": mac}))
        case _:
            raise ConnectionLost(f"the hub asks for a proof other than {PROOF_METHOD}, the only one that we know")


def session_name(welcome: Welcome) -> str:
    """Return the name that the hub gave our session; empty if it told none."""
    match _decode_body(welcome.body):
        case {"session": str(session)}:
            return session
        case _:
            return ""


def public_name(peer: str) -> str:
    """Return what a hub calls a peer before others, who must not come back in its place."""
    return blake2b(peer.encode(), digest_size=6).hexdigest()


def _decode_body(body: Payload) -> object:
    try:
        return body.value()
    except FivewaysError:
        return None
