"""Callbacks of an application: functions that wait for one call, jobs it asked for, and methods by their names."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from fiveways.app.app import Method, method_of
from fiveways.app.attached import Attachments, Incoming
from fiveways.app.callbacks import Callbacks, Line
from fiveways.model import names
from fiveways.model.messages import Call, Word


class OwnCallbacks(Callbacks):
    """All of one application. `run` runs a method for a call. Fulfils `callbacks.Line` as well."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        say: Callable[[Word], None],
        run: Callable[[Call, Method], None],
        incoming: Incoming,
        max_waiting: int,
    ) -> None:
        super().__init__(max_waiting)
        self._methods = methods
        self._run = run
        self._incoming = incoming
        self.say = say
        self.is_over = False

    def once(self, function: Callable[..., object]) -> str:
        """Have a function ready for one call; return the id of its callback. TypeError as `App.method`."""
        return self.add(_Once(method_of(function, "callback"), self._run))

    def takes(self, own_id: str) -> bool:
        """Say whether a callback of this id has a receiver."""
        return own_id in self or self._method_named(own_id) is not None

    def take(self, call: Call) -> bool:
        """Give a call to its receiver, or run the method that it names; False if there is neither."""
        if call.method in self:
            self.called(self, call)
        elif (method := self._method_named(call.method)) is not None:
            self._run(replace(call, method=method.name), method)
        else:
            return False
        return True

    def end(self) -> None:
        """Wait for nothing more."""
        self.is_over = True
        self.lose_all()

    def expect(self, names: Sequence[str]) -> Attachments:
        """Return the place for the attachments of a callback, or of the answer to a call."""
        return self._incoming.expect(names)

    def forget(self, names: Sequence[str], attachments: Attachments) -> None:
        """Let go of attachments that nobody waits for any more."""
        self._incoming.forget(names, attachments)

    def _method_named(self, written: str) -> Method | None:
        try:
            return self._methods.get(names.fold(written, names.LOCAL))
        except names.BadName:
            return None


class _Once(NamedTuple):
    """A function that waits for one call. Fulfils `callbacks.Waiting`."""

    method: Method
    run: Callable[[Call, Method], None]

    def called(self, _: Line, call: Call) -> None:
        """Run it."""
        self.run(call, self.method)

    def lost(self) -> str:
        """Be forgotten with the application."""
        return ""
