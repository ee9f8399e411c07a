"""What a user calls a method or a topic, as the hub's words need it.

Any spelling will do: names are cut at `.` and `:` and folded, topics are dotted.
"""

from functools import lru_cache
from typing import NamedTuple

from fiveways.errors import NotExecuted, Reason, Unrepresentable
from fiveways.model import names, topics
from fiveways.model.names import BadName, NameStyle
from fiveways.model.topics import BadTopic, Pattern, Topic

_CALLBACK_PREFIXES = ("callback.", "callback:")


class CallTarget(NamedTuple):
    """What is called."""

    method: str
    """Folded, or the token of a callback."""
    spelling: str = ""
    is_callback: bool = False


@lru_cache(maxsize=4096)
def parse_target(name: str) -> CallTarget:
    """Return what a name means to a caller; NotExecuted if it means nothing."""
    if name.startswith(_CALLBACK_PREFIXES):
        return CallTarget(name[len(_CALLBACK_PREFIXES[0]) :].lower(), is_callback=True)
    try:
        return CallTarget(names.fold(name, names.UMQ), name)
    except BadName as exc:
        raise NotExecuted(Reason.NO_SUCH_METHOD, str(exc)) from exc


def fold_method(name: str) -> str:
    """Return the folded name of what is offered; NotExecuted if nothing can be offered so."""
    try:
        folded, is_route = names.fold_registration(name, names.UMQ)
    except BadName as exc:
        raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc
    if is_route:
        raise NotExecuted(Reason.BAD_ARGUMENTS, f"{name!r} ends in a separator, as no method does")
    return folded


def spell_name(name: str, style: NameStyle) -> str:
    """Return a name, a prefix or nothing as a protocol writes it: untouched, where that is possible."""
    if not name or style.alphabet is None or style.alphabet.fullmatch(name):
        return name
    try:
        folded, is_route = names.fold_prefix(name, names.UMQ)
        return names.spell_prefix(folded, style) if is_route else names.spell(folded, style)
    except (BadName, Unrepresentable) as exc:
        raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc


def parse_topic(text: str) -> Topic:
    """Read a topic; NotExecuted if there is none."""
    try:
        return topics.parse(text, topics.UMQ)
    except BadTopic as exc:
        raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc


def parse_pattern(text: str) -> Pattern:
    """Read what somebody subscribes to; NotExecuted if nothing can match."""
    try:
        return topics.parse_pattern(text, topics.UMQ)
    except BadTopic as exc:
        raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc
