"""The client's messages of a handshake."""

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
    """Credentials that are incomplete, or that the protocol does not support."""


def check_credentials(settings: ClientSettings, spec: ProtocolSpec) -> None:
    """Raise BadCredentials for credentials that the protocol cannot send."""
    if bool(settings.identity) != bool(settings.secret):
        raise BadCredentials("`identity` and `secret` must be used together")
    if settings.identity and settings.token:
        raise BadCredentials("use either `token`, or `identity` and `secret`, not both")
    if settings.identity and not spec.supports_challenge:
        raise BadCredentials(f"{spec.name} does not support `identity` and `secret`: use `token`, or lrpm")
    if settings.token and settings.address.is_zmq:
        raise BadCredentials("ZeroMQ, which is for local programs, does not support a token: use nq+ws or nq+http")


def hello(settings: ClientSettings, spec: ProtocolSpec) -> Hello:
    """Return the hello message with the credentials."""
    if settings.identity:
        return Hello(Value({"identity": settings.identity}))
    token = settings.token
    if not token:
        return Hello()
    if spec.supports_challenge or strict_json.encode_if_json(token) is not None:
        # The hub would parse a bare token such as 12345 as a number.
        return Hello(Value({"token": token}))
    return Hello(Text(token))


def proof(settings: ClientSettings, challenge: Challenge) -> Proof:
    """Return the response to a challenge.

    Raises:
        Refused: the settings have no secret.
        ConnectionLost: the challenge is malformed, or uses an unknown method.
    """
    if not settings.secret:
        raise Refused("the hub requires authentication: pass `identity` and `secret`")
    match _decode_body(challenge.body):
        case {"nonce": str(nonce), "method": method} if method == PROOF_METHOD:
            mac = hmac.new(settings.secret.encode(), nonce.encode(errors="replace"), "sha256").hexdigest()
            return Proof(Value({"mac": mac}))
        case _:
            raise ConnectionLost(f"the hub requires a proof method other than {PROOF_METHOD}, the only supported one")


def session_name(welcome: Welcome) -> str:
    """Return the session name in a welcome message, or an empty string."""
    match _decode_body(welcome.body):
        case {"session": str(session)}:
            return session
        case _:
            return ""


def public_name(peer: str) -> str:
    """Return the public name of an NQ peer, whose id is secret because it resumes the session."""
    return blake2b(peer.encode(), digest_size=6).hexdigest()


def _decode_body(body: Payload) -> object:
    try:
        return body.value()
    except FivewaysError:
        return None
