"""What holds a client together: its connection, and all that a new one must be made like."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final

from fiveways.app.callbacks import Callbacks
from fiveways.app.context import Reach
from fiveways.app.sources import Attachable
from fiveways.client.keeper import Keeper, OpenLink
from fiveways.client.offers import Offers
from fiveways.client.requests import Pending
from fiveways.client.session import Session
from fiveways.client.settings import Settings
from fiveways.client.subscriptions import Feeds
from fiveways.client.variables import Variables
from fiveways.client.wanted import Make
from fiveways.errors import CallError, CallLost, CallTimeout, ConnectionLost, LocalProtocolError, NotExecuted
from fiveways.model.failures import Reason
from fiveways.model.messages import (
    Attachment,
    Call,
    Cancel,
    Discover,
    Event,
    Failure,
    Result,
    SetVariable,
    TopicClosed,
    UnsetVariable,
    Unsubscribe,
    Word,
)
from fiveways.transports.websocket_client import open_websocket

_AT_ONCE: Final = 256
"""Words that restore a session and wait for their answers together."""
_PARTING: Final = 1.0
"""Seconds for the hub to take back what we offered."""
_log = logging.getLogger("fiveways.client")


async def answered(session: Session, pending: Pending) -> Result:
    """Wait for an answer; who no longer waits tells the hub so."""
    try:
        return await pending.future
    except asyncio.CancelledError:
        session.abandon(pending)
        raise


class Core:
    """One client. Fulfils `keeper.Owner` and `subscriptions.Asker`."""

    def __init__(self, settings: Settings, reach: Reach, open_link: OpenLink = open_websocket) -> None:
        self.settings = settings
        self.keeper = Keeper(settings, self, open_link)
        self.feeds = Feeds(self)
        self.callbacks = Callbacks(settings.limits.max_pending)
        self.offers = Offers(self, self.feeds, reach, settings.limits, show_errors=settings.show_errors)
        self._reach = reach
        self.variables = Variables(self, settings.variables())

    # Asking.

    async def ask(
        self,
        make: Callable[[str, tuple[str, ...]], Word],
        timeout: float | None = None,  # noqa: ASYNC109  it is divided between waiting for a connection and for an answer
        attachments: Sequence[Attachable] = (),
    ) -> Result:
        """Make a request, once there is a connection."""
        session, left = await self.keeper.ready(self.settings.timeout if timeout is None else timeout)
        return await answered(session, session.ask(make, left, attachments))

    async def settle(self, make: Make) -> Result:
        """Make a request that may be made twice: again on a new connection, if one is lost before the answer."""
        left = self.settings.timeout
        while True:
            session, left = await self.keeper.ready(left)
            try:
                return await answered(session, session.ask(partial(_named, make, session), left))
            except (CallLost, NotExecuted):
                if not (session.ended.done() and self.settings.reconnect):
                    raise

    def tell(self, word: Word) -> None:
        """Say what needs no answer, if there is a connection and it can be said."""
        session = self.keeper.session
        if session is not None:
            with suppress(LocalProtocolError):
                session.say(word)

    async def close(self) -> None:
        """End it all."""
        session = self.keeper.session
        if session is not None and session.lasts:
            await self._take_back(session)
        self.feeds.end(None)
        await self.offers.close()  # while those who called us can still be told
        await self.keeper.close()
        self.callbacks.lose_all()

    async def _take_back(self, session: Session) -> None:
        """Leave nothing behind at a hub that waits for us to come back."""
        for name in self.feeds.open_names():
            self.tell(Unsubscribe(None, name))
        with suppress(CallError):
            asked = [session.ask(partial(_named, make, session), _PARTING) for make in self.offers.withdrawn()]
            if asked:
                await asyncio.wait([pending.future for pending in asked], timeout=_PARTING)
            for pending in asked:
                if pending.future.done():
                    pending.future.exception()
                else:
                    session.abandon(pending)

    async def callback(self, function: Callable[..., object]) -> str:
        """Return a token for a function."""
        once = self.offers.once(function)
        name = self.callbacks.add(once)
        try:
            return str(await self._reach.call("hub.callback", {"id": name})).lower()
        except BaseException:
            self.callbacks.remove(name)
            once.forget()
            raise

    # What the keeper tells.

    def heard(self, session: Session, word: Word) -> None:
        """Take what the hub says by itself."""
        if type(word) is Call:
            if word.callback:
                self.callbacks.called(session, word)
            else:
                self.offers.called(word)
        elif isinstance(word, Event | TopicClosed):
            self.feeds.heard(session, word)
        elif isinstance(word, Cancel | Attachment | Discover):
            self.offers.heard(session, word)
        elif isinstance(word, SetVariable | UnsetVariable):
            self.variables.heard(word)
        elif (request := getattr(word, "id", None)) is not None:
            session.say(Failure(request, Reason.NO_METHOD, "this end offers methods, and nothing else"))

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may have something to say by itself."""
        return bool(len(self.feeds) or len(self.offers) or len(self.callbacks))

    def lost(self) -> list[str]:
        """Give up what belonged to a session alone."""
        self.offers.lost()
        return self.callbacks.lose_all()

    def finished(self, error: ConnectionLost) -> None:
        """End what waits for news."""
        self.feeds.end(error)

    async def restore(self, session: Session) -> None:
        """Ask a new session for all that the one before had."""
        self.variables.forget_theirs()
        self.offers.attach(session)
        wait = self.settings.open_timeout
        # In this order: a variable may be what lets us register and subscribe.
        for thing in (self.variables, self.offers, self.feeds):
            rest = iter(thing.wanted())
            while some := list(islice(rest, _AT_ONCE)):
                asked = [session.ask(partial(_named, wanted.make, session), wait) for wanted in some]
                for wanted, pending in zip(some, asked, strict=True):
                    wanted.restored(await self._refusal(session, pending, wanted.label))

    async def _refusal(self, session: Session, pending: Pending, label: str) -> CallError | None:
        """Wait for an answer; ConnectionLost if the session cannot be had at all."""
        either: list[asyncio.Future[Any]] = [pending.future, session.ended]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not pending.future.done():
            session.abandon(pending)
            raise ConnectionLost(str(session.ended.result()))
        try:
            await answered(session, pending)
        except CallError as exc:
            if session.ended.done():
                raise ConnectionLost(str(exc)) from exc
            if isinstance(exc, CallTimeout):
                error = ConnectionLost(f"the hub did not answer: {label}")
                session.abort(error)
                raise error from exc
            _log.warning("%s was not restored: %s", label, exc)
            return exc
        return None


def _named(make: Make, session: Session, call_id: str, _: tuple[str, ...]) -> Word:
    return make(session, call_id)
