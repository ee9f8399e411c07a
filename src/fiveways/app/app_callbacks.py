"""Callbacks of an application: one-shot functions, pulls of jobs, and methods by their names."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from fiveways.app.app import Method, make_method
from fiveways.app.attachments import Attachments, PendingAttachments
from fiveways.app.callbacks import CallbackChannel, Callbacks
from fiveways.model import names
from fiveways.model.messages import Call, HubMessage


class AppCallbacks(Callbacks):
    """Callbacks of one application. Implements `callbacks.CallbackChannel` as well. `run` runs a method."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        send: Callable[[HubMessage], None],
        run: Callable[[Call, Method], None],
        pending_attachments: PendingAttachments,
        max_waiting: int,
    ) -> None:
        super().__init__(max_waiting)
        self._methods = methods
        self._run = run
        self._pending_attachments = pending_attachments
        self.send = send
        self.is_over = False

    def add_function(self, function: Callable[..., object]) -> str:
        """Add a function for one call; return the id of its callback. TypeError as for `App.method`."""
        return self.add(_OneShotFunction(make_method(function, "callback"), self._run))

    def has_receiver(self, own_id: str) -> bool:
        """Return whether there is a receiver for a callback id."""
        return own_id in self or self._find_method(own_id) is not None

    def dispatch(self, call: Call) -> bool:
        """Pass a call to its receiver, or run the method of that name; return False if there is neither."""
        if call.method in self:
            self.handle_call(self, call)
        elif (method := self._find_method(call.method)) is not None:
            self._run(replace(call, method=method.name), method)
        else:
            return False
        return True

    def close(self) -> None:
        """Remove all callbacks."""
        self.is_over = True
        self.drop_all()

    def expect(self, names: Sequence[str]) -> Attachments:
        """Return a place for the attachments of a callback, or of a response."""
        return self._pending_attachments.expect(names)

    def discard(self, names: Sequence[str], attachments: Attachments) -> None:
        """Release attachments."""
        self._pending_attachments.discard(names, attachments)

    def _find_method(self, name: str) -> Method | None:
        try:
            return self._methods.get(names.fold(name, names.LOCAL))
        except names.BadName:
            return None


class _OneShotFunction(NamedTuple):
    """A function that waits for one call. Implements `callbacks.CallbackReceiver`."""

    method: Method
    run: Callable[[Call, Method], None]

    def handle_call(self, _: CallbackChannel, call: Call) -> None:
        """Run the function."""
        self.run(call, self.method)

    def connection_lost(self) -> str:
        """Return an empty string: the callback ends with the application."""
        return ""
