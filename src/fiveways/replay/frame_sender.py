"""Sender of recorded frames, with the live names of the hub."""

from collections import Counter

from fiveways.replay.frame_rewriting import REQUEST, FramePart, HubName
from fiveways.replay.replay_session import ReplaySession
from fiveways.replay.request_matcher import HubRequest
from fiveways.wire.packet import Packet


class FrameSender:
    """Sends parts of frames, and holds back parts with unknown names."""

    def __init__(self) -> None:
        self.sent = 0
        self.unsent: Counter[str] = Counter()
        """Number of frames that were not sent, by reason."""
        self._token_replacements: dict[bytes, bytes] = {}
        """Live callback tokens, by recorded token."""

    def send(self, session: ReplaySession, part: FramePart) -> HubRequest | None:
        """Send a part, or hold it back until all names in it are known and earlier parts are sent.

        Returns:
            The hub request that the part answers, if the live hub has not sent it so far.
        """
        is_blocked = bool(session.blocked_parts) and (part.announced_attachments > 0 or part.is_attachment)
        if part.is_attachment and not is_blocked:
            self._write(session.attachment_session, part.packet)
            return None
        missing = self._missing_name(session, part) if is_blocked else self._send_if_complete(session, part)
        request = session.recorded_requests[missing.name] if missing is not None and missing.kind == REQUEST else None
        if is_blocked or (missing is not None and part.announced_attachments):
            session.blocked_parts.append(part)
        elif missing is not None and request is None:
            session.waiting_parts.setdefault(missing, []).append(part)
        if request is not None:
            # The part is in blocked_parts as well; here the request only notes that a response exists.
            request.answers.append(part)
        return request

    def _missing_name(self, session: ReplaySession, part: FramePart) -> HubName | None:
        """Return a hub name without a known live name; None if there is none."""
        for hub_name in part.hub_names:
            request = session.recorded_requests.get(hub_name.name) if hub_name.kind == REQUEST else None
            if hub_name.kind == REQUEST:
                if request is not None and request.counterpart is None:
                    return hub_name
            elif hub_name not in session.live_names:
                return hub_name
        return None

    def _send_if_complete(self, session: ReplaySession, part: FramePart) -> HubName | None:
        """Send a part; or return a hub name without a known live name."""
        missing = self._missing_name(session, part)
        if missing is not None:
            return missing
        target, names = session, []
        for hub_name in part.hub_names:
            if hub_name.kind != REQUEST:
                names.append(session.live_names[hub_name])
                continue
            request = session.recorded_requests.get(hub_name.name)
            if request is None or request.counterpart is None:
                self.unsent["response to an unknown request"] += 1
                return None
            target = request.counterpart.session
            names.append(request.counterpart.id)
        if part.announced_attachments:
            session.attachment_session = target
        self._write(target, part.with_names(names))
        return None

    def _write(self, session: ReplaySession, packet: Packet) -> None:
        if session.connection is not None:
            self.sent += 1
            session.connection.write([packet])

    def send_answers(self, request: HubRequest) -> None:
        """Send the recorded responses to a request that the live hub has now sent."""
        session = request.session
        answers, request.answers = request.answers, []
        for part in answers:
            if not part.announced_attachments:
                self.send(session, part)
        while session.blocked_parts:
            part = session.blocked_parts[0]
            if part.is_attachment:
                self._write(session.attachment_session, part.packet)
            elif self._send_if_complete(session, part) is not None:
                return
            session.blocked_parts.popleft()

    def learn_name(self, session: ReplaySession, hub_name: HubName, live_name: str) -> None:
        """Set the live name for a hub name, and send the parts that waited for it."""
        session.set_live_name(hub_name, live_name)
        for part in session.waiting_parts.pop(hub_name, ()):
            self.send(session, part)

    def learn_token(self, recorded: str, live: str) -> None:
        """Set the live token for a recorded one; UMQ36 writes tokens in upper case."""
        self._token_replacements |= {
            recorded.lower().encode(): live.lower().encode(),
            recorded.upper().encode(): live.upper().encode(),
        }

    def replace_tokens(self, payload: bytes) -> bytes:
        """Return a payload with live tokens."""
        for recorded, live in self._token_replacements.items():
            if recorded in payload:
                payload = payload.replace(recorded, live)
        return payload
