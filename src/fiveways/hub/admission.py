"""Admission and authentication of sessions. Refusals do not reveal which credential was wrong."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import compare_digest
from hmac import new as new_mac
from math import ceil
from random import Random
from typing import Final

import msgspec

from fiveways.errors import Reason, Unrepresentable
from fiveways.hub.counters import Counters
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.failed_logins import FailedLogins
from fiveways.hub.name_reservations import NameKey, NameReservations
from fiveways.hub.permissions import Access, topic_text
from fiveways.hub.refusal import Refusal, overloaded
from fiveways.hub.session import FrameAnnotation, Handlers, Session, Stage
from fiveways.hub.session_limits import SessionLimits
from fiveways.hub.settings import ALL_PERMISSIONS, NO_PERMISSIONS, HubSettings, Identity
from fiveways.hub.timers import Timers, WakeTime
from fiveways.hub.traits import Credentials
from fiveways.model.messages import Challenge, Goodbye, Hello, Proof, Result, SetVariable, Welcome
from fiveways.model.topics import Topic
from fiveways.wire.payload import Payload, Text, Value

HMAC_METHOD: Final = "hmac-sha256"
ANONYMOUS_REFUSED: Final = "authentication required: no token was given"
WRONG_LOGIN: Final = "the hub does not know this token"
BAD_PROOF: Final = "the hub does not accept this proof"
"""The same for an unknown identity and for a wrong secret."""
HUB_CLOSING: Final = "the hub is closing"
TOO_MANY_FAILED_LOGINS: Final = "too many logins from your address have failed: wait {} seconds before the next one"
LOGIN_TIMED_OUT: Final = "login timed out: the hub got no valid credentials in time"
_NONCE_BITS: Final = 256
_MAX_TOKEN_ATTEMPTS: Final = 10
"""Wrong tokens of one session before the hub closes it."""

_FULL_ACCESS: Final = Access(ALL_PERMISSIONS)
_CONFIGURED_LINK: Final = b"set up"
"""Credential of a connection with an identity from the configuration."""
_RESTORED_SESSION: Final = b"restored"
"""Credential of a restored session: its digest is not stored, and a previous hub process authenticated it."""
NO_ACCESS: Final = Access(NO_PERMISSIONS)


def _ignore(_session: Session | None) -> None:
    """Do nothing."""


class PendingChallenge(msgspec.Struct, frozen=True):
    """An HMAC challenge that a peer has to answer; there may be no identity of this name."""

    identity_name: str
    nonce: str


class Admission:
    """The identities, and the state of each session's login."""

    def __init__(
        self,
        random: Random,
        settings: HubSettings,
        sessions: Mapping[str, Session],
        counters: Counters,
        alarm: WakeTime,
    ) -> None:
        self._random = random
        self._sessions = sessions
        self._failed_logins = FailedLogins()
        self.name_reservations = NameReservations(alarm, settings.name_grace)
        self._counters = counters
        self._tables: Mapping[Stage, Handlers] = {}
        self._durable_tables: Mapping[Stage, Handlers] = {}
        self._login_timers = Timers(alarm)
        """Login deadlines of sessions."""
        self._challenges: dict[str, PendingChallenge] = {}
        self._attempts: dict[str, int] = {}
        self.session_limits = SessionLimits(settings, sessions, counters)
        """Limits of the number of sessions."""
        self.is_closed = False
        self.on_admitted: Callable[[Session], None] = _ignore
        """Called after each admission."""
        self.on_refused: Callable[[Session | None], None] = _ignore
        """Called after each refused login, with the session if there is one."""
        self._configure(settings)

    def set_tables(self, tables: Mapping[Stage, Handlers], durable_tables: Mapping[Stage, Handlers]) -> None:
        """Set the message handlers by stage; `durable_tables` is for sessions with durable requests."""
        self._tables = tables
        self._durable_tables = durable_tables

    def _configure(self, settings: HubSettings) -> None:
        self._settings = settings
        self._failed_logins.configure(settings)
        self.session_limits.configure(settings)
        self._by_name = {identity.name: identity for identity in settings.identities}
        self._token_identities = [identity for identity in settings.identities if identity.token]
        self._access = {identity.name: Access(identity.permissions) for identity in settings.identities}
        self._anonymous_access = Access(settings.anonymous_permissions)
        self._digests = {
            identity.name: {_digest(text) for text in (identity.token, identity.secret) if text}
            for identity in settings.identities
        }

    def close(self) -> None:
        """Admit no session any more."""
        self.is_closed = True

    def reload(self, settings: HubSettings) -> None:
        """Apply new settings to all sessions: one that they would not admit stays, without permissions."""
        self._configure(settings)
        for session in self._sessions.values():
            if session.stage is Stage.OPEN and not session.credentials.is_trusted:
                session.access = self._current_access(session)

    def _current_access(self, session: Session) -> Access:
        """Return the permissions that the current settings give to a session that earlier settings admitted."""
        if not session.identity:
            return self._anonymous_access if self._admits_anonymous(session.credentials) else NO_ACCESS
        is_valid = session.credential_digest in {
            *self._digests.get(session.identity, ()),
            _CONFIGURED_LINK,
            _RESTORED_SESSION,
        }
        return self._access.get(session.identity, NO_ACCESS) if is_valid else NO_ACCESS

    # Logins.

    def arrive(self, session: Session, now: float) -> None:
        """Start the login of a new session."""
        self._enter(session, Stage.CONNECTED)
        self._login_timers.set(session.peer, now + self._settings.login_timeout)

    def handle_hello(self, session: Session, message: Hello, now: float) -> Deliveries:
        """Admit a peer, send it a challenge, or refuse it."""
        if self.is_closed:
            return self.send_away(session, Goodbye(HUB_CLOSING))
        if session.credentials.is_trusted:
            return self._welcome(session, _FULL_ACCESS)
        value = _decoded(message.body)
        if (token := self._token_of(session, message.body, value)) is not None:
            if wait := self.retry_after(session.credentials, now):
                return self._refuse_too_many_failures(session, wait)
            identity = self._identity_of_token(token)
            if identity is None:
                return self._deny(session, WRONG_LOGIN, now)
            return self._admit(session, identity, token)
        if session.traits.has_challenge and isinstance(value, dict) and isinstance(value.get("identity"), str):
            if wait := self.retry_after(session.credentials, now):
                return self._refuse_too_many_failures(session, wait)
            return self._challenge(session, value["identity"])
        if self._admits_anonymous(session.credentials):
            return self._welcome(session, self._anonymous_access)
        if not session.traits.has_challenge and self._token_identities and value in (None, "", {}):
            # It may still send its token as a variable until the login deadline.
            self._enter(session, Stage.UNIDENTIFIED)
            return [Delivery(session.peer, self._greeting(session))]
        return self._deny(session, ANONYMOUS_REFUSED, None)

    def restore(self, session: Session, identity: str) -> None:
        """Restore a session that a previous hub process authenticated as this identity; the current settings apply."""
        self.session_limits.take_slot(session, identity, always=True)
        self._open_session(session, NO_ACCESS, identity)
        session.credential_digest = _RESTORED_SESSION
        session.access = self._current_access(session)

    def resume(self, session: Session, credentials: Credentials) -> None:
        """Authorize a session by the credentials of its new connection: the token may have been rotated."""
        session.remote, previous = credentials.remote, session.credentials
        is_same = (credentials.bearer, credentials.is_loopback) == (previous.bearer, previous.is_loopback)
        if is_same and session.credential_digest is not _RESTORED_SESSION:
            session.update_owner()
            return
        if credentials.bearer or session.credential_digest is _RESTORED_SESSION:
            session.credential_digest = _digest(credentials.bearer)
        session.credentials = credentials
        session.update_owner()
        if session.stage is Stage.OPEN:
            session.access = self._current_access(session)

    def admit(self, session: Session, name: str) -> bool:
        """Admit a connection of the operator, as an identity or anonymous; return whether the settings allow it."""
        identity = self._by_name.get(name)
        self.session_limits.take_slot(session, name, always=True)
        if identity is not None:
            self._open_session(session, self._access[name], name)
            session.credential_digest = _CONFIGURED_LINK
        else:
            is_allowed = not name and self._admits_anonymous(session.credentials)
            self._open_session(session, self._anonymous_access if is_allowed else NO_ACCESS)
        return session.access is not NO_ACCESS

    def identify(self, credentials: Credentials) -> str | None:
        """Return the identity of these credentials, empty for anonymous access; None if they are refused."""
        if credentials.bearer:
            identity = self._identity_of_token(credentials.bearer)
            return None if identity is None else identity.name
        return "" if self._admits_anonymous(credentials) else None

    def retry_after(self, credentials: Credentials, now: float) -> int:
        """Return the seconds for which this address may not log in after too many failed logins; 0 if it may."""
        return ceil(self._failed_logins.remaining_wait(credentials, now))

    def may_call(self, credentials: Credentials, method: str, now: float) -> bool:
        """Return whether a request with these credentials would be admitted and may call a method.

        Raise Refusal for unknown credentials; that counts as a failed login.
        """
        if credentials.bearer:
            if wait := self.retry_after(credentials, now):
                self._count_refused_login()
                raise Refusal(Reason.OVERLOADED, TOO_MANY_FAILED_LOGINS.format(wait), wait)
            identity = self._identity_of_token(credentials.bearer)
            if identity is None:
                self._failed_logins.count(credentials, now)
                self._count_refused_login()
                raise Refusal(Reason.DENIED, WRONG_LOGIN)
            access = self._access[identity.name]
        else:
            access = self._anonymous_access if self._admits_anonymous(credentials) else NO_ACCESS
        return access.call is None or access.call.allows(method)

    def may_others_publish(self, session: Session, topic: Topic) -> bool:
        """Return whether another identity, or an anonymous peer, may publish to a topic."""
        others = [access for name, access in self._access.items() if name != session.identity]
        if session.identity and self._settings.anonymous != "never":
            others.append(self._anonymous_access)
        return any(access.publish is None or access.publish.allows(topic_text(topic)) for access in others)

    def release_names(self) -> None:
        """Release the reserved names that the new settings forbid to their owners."""
        self.name_reservations.grace_period = self._settings.name_grace
        self.name_reservations.release_forbidden(self._may_register)

    def _may_register(self, identity: str, key: NameKey) -> bool:
        access = self._access.get(identity, NO_ACCESS) if identity else _FULL_ACCESS
        return access.may_register(key.name, route=key.is_route)

    def handle_proof(self, session: Session, message: Proof, now: float) -> Deliveries:
        """Admit a peer that answered its challenge correctly."""
        challenge = self._challenges.pop(session.peer, None)
        if wait := self.retry_after(session.credentials, now):
            return self._refuse_too_many_failures(session, wait)
        value = _decoded(message.body)
        mac = value.get("mac") if isinstance(value, dict) else None
        identity = self._by_name.get(challenge.identity_name) if challenge else None
        # Compute the MAC even without an identity or a secret, so that the response time reveals neither.
        secret = identity.secret if identity else ""
        expected_mac = compute_mac(secret, challenge.nonce if challenge else "")
        if (
            not isinstance(mac, str)
            or not _is_equal_constant_time(mac.lower(), expected_mac)
            or not identity
            or not secret
        ):
            return self._deny(session, BAD_PROOF, now)
        return self._admit(session, identity, secret)

    def handle_token(self, session: Session, message: SetVariable, now: float) -> Deliveries:
        """Handle the variable `token`: a session may authenticate with it at any time."""
        if wait := self.retry_after(session.credentials, now):
            if message.id is None:
                return self._refuse_too_many_failures(session, wait)
            self._count_refused_login(session)
            raise Refusal(Reason.OVERLOADED, TOO_MANY_FAILED_LOGINS.format(wait), wait)
        token = message.body.raw if isinstance(message.body, Text) else _decoded(message.body)
        identity = self._identity_of_token(token) if isinstance(token, str) else None
        if identity is not None:
            self._failed_logins.forget(session.credentials)
            if error := self.session_limits.take_slot(session, identity.name):
                raise overloaded(error)
            self._open_session(session, self._access[identity.name], identity.name, identity.token)
            return [] if message.id is None else [Delivery(session.peer, Result(message.id))]
        attempts = self._attempts[session.peer] = self._attempts.get(session.peer, 0) + 1
        if message.id is None or attempts >= _MAX_TOKEN_ATTEMPTS:
            return self._deny(session, WRONG_LOGIN, now)
        self._failed_logins.count(session.credentials, now)
        self._count_refused_login(session)
        raise Refusal(Reason.DENIED, WRONG_LOGIN)

    def leave(self, session: Session) -> None:
        """Forget a session."""
        self.session_limits.leave(session)
        self._login_timers.cancel(session.peer)
        self._challenges.pop(session.peer, None)
        self._attempts.pop(session.peer, None)

    def deadline(self) -> float | None:
        """Return the time of the next call of `expire`."""
        times = (self._login_timers.next_due(), self.name_reservations.deadline())
        return min((time for time in times if time is not None), default=None)

    def expire(self, now: float) -> Deliveries:
        """Close sessions after their login deadline."""
        self.name_reservations.expire(now)
        deliveries: Deliveries = []
        for peer in self._login_timers.pop_due(now):
            self._count_refused_login(self._sessions[peer])
            deliveries += self.send_away(self._sessions[peer], Goodbye(LOGIN_TIMED_OUT, denied=True))
        return deliveries

    def _enter(self, session: Session, stage: Stage) -> None:
        session.stage = stage
        session.handlers = (self._durable_tables if session.traits.is_durable else self._tables)[stage]

    def _open_session(self, session: Session, access: Access, identity: str = "", credential: str = "") -> None:
        session.access, session.identity, session.credential_digest = access, identity, _digest(credential)
        session.update_owner()
        self.name_reservations.arrive(session)
        self._login_timers.cancel(session.peer)
        self._enter(session, Stage.OPEN)
        self.on_admitted(session)

    def _admit(self, session: Session, identity: Identity, credential: str) -> Deliveries:
        self._failed_logins.forget(session.credentials)
        return self._welcome(session, self._access[identity.name], identity.name, credential)

    def _welcome(self, session: Session, access: Access, identity: str = "", credential: str = "") -> Deliveries:
        if error := self.session_limits.take_slot(session, identity):
            return self.send_away(session, Goodbye(error))
        self._open_session(session, access, identity, credential)
        return [Delivery(session.peer, self._greeting(session))]

    def _greeting(self, session: Session) -> Welcome:
        return Welcome(Value({"session": session.peer, "version": self._settings.version}))

    def _challenge(self, session: Session, name: str) -> Deliveries:
        nonce = f"{self._random.getrandbits(_NONCE_BITS):0{_NONCE_BITS // 4}x}"
        self._challenges[session.peer] = PendingChallenge(name, nonce)
        return [Delivery(session.peer, Challenge(Value({"nonce": nonce, "method": HMAC_METHOD})))]

    def _count_refused_login(self, session: Session | None = None) -> None:
        self._counters.refused_logins += 1
        self.on_refused(session)

    def _deny(self, session: Session, error: str, now: float | None) -> Deliveries:
        """Close a session after a failed login; `now` is None if it tried no credential."""
        if now is not None:
            self._failed_logins.count(session.credentials, now)
        self._count_refused_login(session)
        session.annotation = FrameAnnotation("deny", error)
        return self.send_away(session, Goodbye(error, denied=True))

    def _refuse_too_many_failures(self, session: Session, wait: int) -> Deliveries:
        """Close a session without a check of its credentials; the peer may retry later."""
        self._count_refused_login(session)
        session.annotation = FrameAnnotation("deny", error := TOO_MANY_FAILED_LOGINS.format(wait))
        return self.send_away(session, Goodbye(error))

    def send_away(self, session: Session, goodbye: Goodbye) -> Deliveries:
        """Close a session with a goodbye."""
        self.leave(session)
        session.access, session.goodbye = NO_ACCESS, goodbye
        self._enter(session, Stage.CLOSED)
        return [Delivery(session.peer, goodbye)]

    # Credentials.

    def _admits_anonymous(self, credentials: Credentials) -> bool:
        allowed = self._settings.anonymous
        return allowed == "always" or (allowed == "loopback" and credentials.is_loopback)

    def _token_of(self, session: Session, body: Payload, value: object) -> str | None:
        """Return the token that a peer sent; None if it sent none."""
        if session.credentials.bearer:
            return session.credentials.bearer
        if isinstance(value, dict):
            token = value.get("token")
            # Not a text: no identity has such a token.
            return None if token is None else token if isinstance(token, str) else ""
        # A text alone counts as a token only if tokens are configured: existing clients send other texts there.
        text = body.raw if isinstance(body, Text) and value is not None else value
        return text if self._token_identities and isinstance(text, str) and text else None

    def _identity_of_token(self, token: str) -> Identity | None:
        match = None
        for identity in self._token_identities:
            # Compare all tokens, so that the response time does not reveal a near match.
            if _is_equal_constant_time(identity.token, token):
                match = identity
        return match


def compute_mac(secret: str, nonce: str) -> str:
    """Return the proof that a peer knows the secret, for one nonce."""
    return new_mac(secret.encode(), nonce.encode(), sha256).hexdigest()


def _digest(text: str) -> bytes:
    """Return a digest by which a later reload recognizes a token or secret without storing it."""
    return sha256(text.encode(errors="surrogatepass")).digest()


def _is_equal_constant_time(left: str, right: str) -> bool:
    return compare_digest(left.encode(errors="surrogatepass"), right.encode(errors="surrogatepass"))


def _decoded(body: Payload) -> object:
    try:
        return body.value()
    except Unrepresentable:
        return None
