"""What the hub says to requests of the peer: that they are accepted, how far they are, and how they end."""

from collections import deque
from math import inf
from typing import Final

from fiveways.errors import LocalProtocolError
from fiveways.model import messages as hub
from fiveways.model.failures import Reason
from fiveways.protocols import builtins
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq import messages as nq
from fiveways.protocols.nq.bridge import JSON_NULL, body_of
from fiveways.protocols.nq.common import Common
from fiveways.protocols.nq.errors import Err
from fiveways.protocols.nq.frames import Free
from fiveways.protocols.nq.requests import Requests, Serving
from fiveways.protocols.nq.states import Step, Taken
from fiveways.protocols.nq.streams import Sender
from fiveways.protocols.nq.writing import back, write, write_answer
from fiveways.wire.payload import NULL, Json, Payload

_LONGEST_CODE: Final = 64
SMALL: Final = 1024
"""Bytes of an answer that is always kept."""


class Answering:
    """The lower half of `Incoming`: what goes back to the peer."""

    def __init__(self, common: Common) -> None:
        self._common = common
        self._line = common.line
        self.requests = Requests(common)
        self._accept_within = common.options.accept_within
        self.unsaid: deque[tuple[float, Serving]] = deque()
        """Acceptances, and when each must be said."""

    def say_accepted(self, word: hub.Accepted, now: float) -> None:
        """`{a, i}`."""
        serving = self.requests.unanswered(word.id)
        serving.advance(Step.ACCEPT)
        serving.accepted = True
        serving.op = self._common.op
        if self._accept_within:
            self.unsaid.append((now + self._accept_within, serving))
        else:
            self._say_acceptance(serving)

    def say_acceptances(self, until: float = inf) -> None:
        """Say of those that were accepted, and should have heard so by then, what was not answered meanwhile."""
        unsaid = self.unsaid
        while unsaid and unsaid[0][0] <= until:
            serving = unsaid.popleft()[1]
            if serving.state is Taken.ACCEPTED:
                self._say_acceptance(serving)

    def say_result(self, word: hub.Result, now: float, free: Free | None = None) -> None:
        """`{a, i, d}`, or one part of it."""
        serving = self.requests.unanswered(word.id)
        body = word.body if type(word.body) is Json or word.body is None else body_of(word.body)
        if word.extras:
            free = (bridge.free_of(word.extras) or {}) | (free or {})
        if word.stream:
            self._part(serving, body, None, free, now, end=word.last)
        elif serving.sender is not None:
            raise LocalProtocolError(f"request {word.id} is answered in parts")
        else:
            if free:
                raw = write(nq.Answer(serving.a, (serving.r,), body or JSON_NULL, free))
            else:
                raw = write_answer(back(serving.a, (serving.r,)), body or JSON_NULL)
            self._common.fitting(raw)
            if not self._has_room(raw):
                raise LocalProtocolError("too many bytes of answers are not acknowledged")
            self._keep(serving, raw, now)
        if serving.topic:
            self._common.published.settle(serving.topic, serving.a, serving.grant, granted=True)

    def say_description(self, word: hub.Description, now: float) -> None:
        """Answer `hub-discover`."""
        self.say_result(hub.Result(word.id, builtins.described(word)), now)

    def say_failure(self, word: hub.Failure, now: float) -> None:
        """`{a, i, e}`, fatal; in a stream it is the end of it."""
        serving = self.requests.unanswered(word.id)
        error = bridge.error_of(word, accepted=serving.state is not Taken.RECEIVED)
        error = serving.excuse or error if word.reason is Reason.CANCELLED else error
        body = None if word.data is None else body_of(word.data)
        raw = self._common.fitting(write(nq.ErrorAnswer(serving.a, (serving.r,), body, error)))
        if not self._has_room(raw):
            body, error = None, Err(error.type, True, error.err[:_LONGEST_CODE])  # the end must always find room
            raw = write(nq.ErrorAnswer(serving.a, (serving.r,), None, error))
        if serving.sender is None:
            self._keep(serving, raw, now)
        else:
            self._part(serving, body, error, None, now, end=True)
        if serving.topic:
            self._common.published.settle(serving.topic, serving.a, serving.grant, granted=False)

    def say_progress(self, word: hub.Progress, now: float) -> None:
        """`{a, i, e}`, not fatal; `tmp` and `debug` only for who asked for them (NQ-a13)."""
        serving = self.requests.unanswered(word.id)
        error = bridge.error_of_progress(word)
        body = None if word.body is NULL else body_of(word.body)
        raw = self._common.fitting(write(nq.Note(serving.a, (serving.r,), body, error)))
        if serving.v or word.kind not in bridge.VERBOSE_KINDS:
            self._line.say(raw, self._common.op)

    def _say_acceptance(self, serving: Serving) -> None:
        self._line.say(back(serving.a, (serving.r,)) + b"}", serving.op)

    def _has_room(self, raw: bytes) -> bool:
        return len(raw) <= SMALL or self._common.kept.has(len(raw))

    def _keep(self, serving: Serving, raw: bytes, now: float) -> None:
        serving.advance(Step.END)
        serving.always, serving.op = raw, self._common.op
        self.requests.keep(serving, now + self._common.options.answer_ttl)
        self._line.push(serving)

    def _part(
        self, serving: Serving, body: Payload | None, error: Err | None, free: Free | None, now: float, *, end: bool
    ) -> None:
        sender = serving.sender or Sender(self._common, op=self._common.op)
        number = sender.last + 1
        part = nq.AnswerPart(serving.a, (serving.r,), body, error, number, 0 if end else None, free)
        raw = self._common.fitting(write(part))
        if not end and body is None:
            raise LocalProtocolError("only the end of a stream may carry nothing")
        if error is None and number > self._common.limits.max_stream:
            raise LocalProtocolError(f"the peer takes no more than {number - 1} parts of the answer to {serving.key}")
        if error is None and sender.is_full(len(raw)):
            raise LocalProtocolError("too many parts or bytes of answers are not acknowledged")
        serving.advance(Step.END if end else Step.PART)
        serving.sender = sender
        sender.add(raw, end=end)
        if end:
            self.requests.keep(serving, now + self._common.options.answer_ttl)
        if sender.has_more():
            self._line.push(sender)
