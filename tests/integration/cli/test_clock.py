"""`fiveways clock`."""

import json

from tests.support.command_output import CommandRunner
from tests.support.hubs import serving


def test_clock_is_shown_and_confirmed_with_explicit_permission(said: CommandRunner) -> None:
    with serving("--set", 'auth.call=["*", "hub.clock"]') as hub:
        status = json.loads(said("clock", hub.url("lrpm")))
        assert (status["held"], status["jump"]) == (False, 0)
        assert status["wall"] > 1e9
        confirmed = {"confirmed": False, "jump": 0, "expired": 0}
        assert json.loads(said("clock", hub.url("nq+http"), "--confirm")) == confirmed


def test_confirmation_without_the_permission_is_refused(said: CommandRunner) -> None:
    with serving() as hub:
        said("clock", hub.url("lrpm"), "--confirm", code=1)
        assert "you may not call hub.clock" in said.err
