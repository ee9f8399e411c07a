"""What is said again: frames as they lie, with the names that the hub uses now."""

from collections import Counter

from fiveways.replay.frame_rewriting import REQUEST, FramePart, HubName
from fiveways.replay.replay_session import ReplaySession
from fiveways.replay.request_matcher import HubRequest
from fiveways.wire.packet import Packet


class FrameSender:
    """Sends pieces, and keeps those that cannot be said yet."""

    def __init__(self) -> None:
        self.sent = 0
        self.unsent: Counter[str] = Counter()
        """Frames that could not be sent, by the reason."""
        self._token_replacements: dict[bytes, bytes] = {}
        """Callback tokens of then, and of now."""

    def send(self, talk: ReplaySession, piece: FramePart) -> HubRequest | None:
        """Send a piece, or keep it until all names in it are known, and what goes before it has gone.

        Returns:
            The request that it answers, if that was not asked yet.
        """
        is_blocked = bool(talk.blocked_parts) and (piece.announced_attachments > 0 or piece.is_attachment)
        if piece.is_attachment and not is_blocked:
            self._write(talk.attachment_session, piece.packet)
            return None
        missing = self._missing_name(talk, piece) if is_blocked else self._send_if_complete(talk, piece)
        ask = talk.recorded_requests[missing.name] if missing is not None and missing.kind == REQUEST else None
        if is_blocked or (missing is not None and piece.announced_attachments):
            talk.blocked_parts.append(piece)
        elif missing is not None and ask is None:
            talk.waiting_parts.setdefault(missing, []).append(piece)
        if ask is not None:
            # Of what is blocked, the request only has to know that there is something.
            ask.answers.append(piece)
        return ask

    def _missing_name(self, talk: ReplaySession, piece: FramePart) -> HubName | None:
        """Return a name that is not known yet."""
        for need in piece.hub_names:
            ask = talk.recorded_requests.get(need.name) if need.kind == REQUEST else None
            if need.kind == REQUEST:
                if ask is not None and ask.counterpart is None:
                    return need
            elif need not in talk.live_names:
                return need
        return None

    def _send_if_complete(self, talk: ReplaySession, piece: FramePart) -> HubName | None:
        """Send a piece; or return a name that it lacks."""
        missing = self._missing_name(talk, piece)
        if missing is not None:
            return missing
        target, names = talk, []
        for need in piece.hub_names:
            if need.kind != REQUEST:
                names.append(talk.live_names[need])
                continue
            ask = talk.recorded_requests.get(need.name)
            if ask is None or ask.counterpart is None:
                self.unsent["answers nothing in this journal"] += 1
                return None
            target = ask.counterpart.session
            names.append(ask.counterpart.id)
        if piece.announced_attachments:
            talk.attachment_session = target
        self._write(target, piece.with_names(names))
        return None

    def _write(self, talk: ReplaySession, packet: Packet) -> None:
        if talk.connection is not None:
            self.sent += 1
            talk.connection.write([packet])

    def send_answers(self, ask: HubRequest) -> None:
        """Answer what is asked now as it was answered then."""
        talk = ask.session
        answers, ask.answers = ask.answers, []
        for piece in answers:
            if not piece.announced_attachments:
                self.send(talk, piece)
        while talk.blocked_parts:
            piece = talk.blocked_parts[0]
            if piece.is_attachment:
                self._write(talk.attachment_session, piece.packet)
            elif self._send_if_complete(talk, piece) is not None:
                return
            talk.blocked_parts.popleft()

    def learn_name(self, talk: ReplaySession, need: HubName, name: str) -> None:
        """Know what something is called now, and say what waited for that."""
        talk.set_live_name(need, name)
        for piece in talk.waiting_parts.pop(need, ()):
            self.send(talk, piece)

    def learn_token(self, was: str, now: str) -> None:
        """Know a token of then, and of now; one protocol writes them in capitals."""
        self._token_replacements |= {
            was.lower().encode(): now.lower().encode(),
            was.upper().encode(): now.upper().encode(),
        }

    def replace_tokens(self, payload: bytes) -> bytes:
        """Return a payload with the tokens of now."""
        for was, now in self._token_replacements.items():
            if was in payload:
                payload = payload.replace(was, now)
        return payload
