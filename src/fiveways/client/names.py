"""Conversion of the names of methods and topics that a user writes.

Any spelling is accepted: method names are split at `.` and `:` and folded, topics are split at dots.
"""

from functools import lru_cache
from typing import NamedTuple

from fiveways.errors import NotExecuted, Reason, Unrepresentable
from fiveways.model import names, topics
from fiveways.model.names import BadName, NameStyle
from fiveways.model.topics import BadTopic, Pattern, Topic

_CALLBACK_PREFIXES = ("callback.", "callback:")


class CallTarget(NamedTuple):
    """Target of a call."""

    method: str
    """Folded method name, or the token of a callback."""
    spelling: str = ""
    is_callback: bool = False


@lru_cache(maxsize=4096)
def parse_target(name: str) -> CallTarget:
    """Return the target of a call; NotExecuted if the name is invalid."""
    if name.startswith(_CALLBACK_PREFIXES):
        return CallTarget(name[len(_CALLBACK_PREFIXES[0]) :].lower(), is_callback=True)
    try:
        return CallTarget(names.fold(name, names.UMQ), name)
    except BadName as exc:
        raise NotExecuted(Reason.NO_SUCH_METHOD, str(exc)) from exc


def fold_method(name: str) -> str:
    """Return the folded name of a method to register; NotExecuted if the name is invalid or ends in a separator."""
    try:
        folded, is_route = names.fold_registration(name, names.UMQ)
    except BadName as exc:
        raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc
    if is_route:
        raise NotExecuted(Reason.BAD_ARGUMENTS, f"{name!r} ends in a separator; a method name must not")
    return folded


def spell_name(name: str, style: NameStyle) -> str:
    """Return a name, prefix or empty string in a protocol's spelling, unchanged if its alphabet allows that.

    Raises:
        NotExecuted: the protocol cannot spell the name.
    """
    if not name or style.alphabet is None or style.alphabet.fullmatch(name):
        return name
    try:
        folded, is_route = names.fold_prefix(name, names.UMQ)
        return names.spell_prefix(folded, style) if is_route else names.spell(folded, style)
    except (BadName, Unrepresentable) as exc:
        raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc


def parse_topic(text: str) -> Topic:
    """Parse a topic; NotExecuted if it is invalid."""
    try:
        return topics.parse(text, topics.UMQ)
    except BadTopic as exc:
        raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc


def parse_pattern(text: str) -> Pattern:
    """Parse a topic or a pattern for a subscription; NotExecuted if it is invalid."""
    try:
        return topics.parse_pattern(text, topics.UMQ)
    except BadTopic as exc:
        raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc
