"""Callbacks of an application: functions that wait for one call, jobs it asked for, and methods by their names."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from fiveways.app.app import Method, make_method
from fiveways.app.attachments import Attachments, PendingAttachments
from fiveways.app.callbacks import CallbackChannel, Callbacks
from fiveways.model import names
from fiveways.model.messages import Call, HubMessage


class AppCallbacks(Callbacks):
    """All of one application. `run` runs a method for a call. Fulfils `callbacks.Line` as well."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        say: Callable[[HubMessage], None],
        run: Callable[[Call, Method], None],
        incoming: PendingAttachments,
        max_waiting: int,
    ) -> None:
        super().__init__(max_waiting)
        self._methods = methods
        self._run = run
        self._pending_attachments = incoming
        self.send = say
        self.is_over = False

    def add_function(self, function: Callable[..., object]) -> str:
        """Have a function ready for one call; return the id of its callback. TypeError as `App.method`."""
        return self.add(_OneShotFunction(make_method(function, "callback"), self._run))

    def has_receiver(self, own_id: str) -> bool:
        """Say whether a callback of this id has a receiver."""
        return own_id in self or self._find_method(own_id) is not None

    def dispatch(self, call: Call) -> bool:
        """Give a call to its receiver, or run the method that it names; False if there is neither."""
        if call.method in self:
            self.handle_call(self, call)
        elif (method := self._find_method(call.method)) is not None:
            self._run(replace(call, method=method.name), method)
        else:
            return False
        return True

    def close(self) -> None:
        """Wait for nothing more."""
        self.is_over = True
        self.drop_all()

    def expect(self, names: Sequence[str]) -> Attachments:
        """Return the place for the attachments of a callback, or of the answer to a call."""
        return self._pending_attachments.expect(names)

    def discard(self, names: Sequence[str], attachments: Attachments) -> None:
        """Let go of attachments that nobody waits for any more."""
        self._pending_attachments.discard(names, attachments)

    def _find_method(self, written: str) -> Method | None:
        try:
            return self._methods.get(names.fold(written, names.LOCAL))
        except names.BadName:
            return None


class _OneShotFunction(NamedTuple):
    """A function that waits for one call. Fulfils `callbacks.Waiting`."""

    method: Method
    run: Callable[[Call, Method], None]

    def handle_call(self, _: CallbackChannel, call: Call) -> None:
        """Run it."""
        self.run(call, self.method)

    def connection_lost(self) -> str:
        """Be forgotten with the application."""
        return ""
