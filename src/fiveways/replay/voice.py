"""What is said again: frames as they lie, with the names that the hub uses now."""

from collections import Counter

from fiveways.replay.desk import Ask
from fiveways.replay.naming import REQUEST, Need, Piece
from fiveways.replay.talks import Talk
from fiveways.wire.packet import Packet


class Voice:
    """Sends pieces, and keeps those that cannot be said yet."""

    def __init__(self) -> None:
        self.sent = 0
        self.unsent: Counter[str] = Counter()
        """Frames that could not be sent, by the reason."""
        self._tokens: dict[bytes, bytes] = {}
        """Callback tokens of then, and of now."""

    def say(self, talk: Talk, piece: Piece) -> Ask | None:
        """Send a piece, or keep it until all names in it are known, and what goes before it has gone.

        Returns:
            The request that it answers, if that was not asked yet.
        """
        is_blocked = bool(talk.blocked) and (piece.announces > 0 or piece.follows)
        if piece.follows and not is_blocked:
            self._write(talk.last, piece.packet)
            return None
        missing = self._lacks(talk, piece) if is_blocked else self._try(talk, piece)
        ask = talk.asked[missing.name] if missing is not None and missing.kind == REQUEST else None
        if is_blocked or (missing is not None and piece.announces):
            talk.blocked.append(piece)
        elif missing is not None and ask is None:
            talk.waiting.setdefault(missing, []).append(piece)
        if ask is not None:
            # Of what is blocked, the request only has to know that there is something.
            ask.answers.append(piece)
        return ask

    def _lacks(self, talk: Talk, piece: Piece) -> Need | None:
        """Return a name that is not known yet."""
        for need in piece.needs:
            ask = talk.asked.get(need.name) if need.kind == REQUEST else None
            if need.kind == REQUEST:
                if ask is not None and ask.like is None:
                    return need
            elif need not in talk.names:
                return need
        return None

    def _try(self, talk: Talk, piece: Piece) -> Need | None:
        """Send a piece; or return a name that it lacks."""
        missing = self._lacks(talk, piece)
        if missing is not None:
            return missing
        target, names = talk, []
        for need in piece.needs:
            if need.kind != REQUEST:
                names.append(talk.names[need])
                continue
            ask = talk.asked.get(need.name)
            if ask is None or ask.like is None:
                self.unsent["answers nothing in this journal"] += 1
                return None
            target = ask.like.talk
            names.append(ask.like.id)
        if piece.announces:
            talk.last = target
        self._write(target, piece.named(names))
        return None

    def _write(self, talk: Talk, packet: Packet) -> None:
        if talk.wire is not None:
            self.sent += 1
            talk.wire.write([packet])

    def give(self, ask: Ask) -> None:
        """Answer what is asked now as it was answered then."""
        talk = ask.talk
        answers, ask.answers = ask.answers, []
        for piece in answers:
            if not piece.announces:
                self.say(talk, piece)
        while talk.blocked:
            piece = talk.blocked[0]
            if piece.follows:
                self._write(talk.last, piece.packet)
            elif self._try(talk, piece) is not None:
                return
            talk.blocked.popleft()

    def learn(self, talk: Talk, need: Need, name: str) -> None:
        """Know what something is called now, and say what waited for that."""
        talk.know(need, name)
        for piece in talk.waiting.pop(need, ()):
            self.say(talk, piece)

    def learn_token(self, was: str, now: str) -> None:
        """Know a token of then, and of now; one protocol writes them in capitals."""
        self._tokens |= {was.lower().encode(): now.lower().encode(), was.upper().encode(): now.upper().encode()}

    def with_tokens(self, payload: bytes) -> bytes:
        """Return a payload with the tokens of now."""
        for was, now in self._tokens.items():
            if was in payload:
                payload = payload.replace(was, now)
        return payload
