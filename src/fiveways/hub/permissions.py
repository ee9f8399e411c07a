"""Who may do what: allow lists of globs, compiled, and with a memory for what was asked before."""

from typing import Final

from fiveways.errors import Reason
from fiveways.hub.refusal import Refusal
from fiveways.hub.settings import ANY_NAME, Permissions
from fiveways.model.topics import ANY_SEGMENT, UMQ, BadTopic, Pattern, SegmentPattern, Topic, spell, spell_pattern

_MAX_CACHED: Final = 4096
"""Answers that one list keeps at hand."""


class Glob:
    """One pattern in which each `*` stands for any characters, none or dots included."""

    __slots__ = ("_middle", "_prefix", "_suffix")

    def __init__(self, pattern: str) -> None:
        self._prefix, *rest = pattern.split("*")
        self._middle = tuple(rest[:-1])
        self._suffix = rest[-1] if rest else None
        """What stands behind the last `*`; None if there is no `*`."""

    def matches(self, text: str) -> bool:
        """Say whether the whole text is one that the pattern stands for."""
        first, last = self._prefix, self._suffix
        if last is None:
            return text == first
        start, end = len(first), len(text) - len(last)
        if start > end or not text.startswith(first) or not text.endswith(last):
            return False
        # The leftmost place for a piece leaves most room for the next, so nothing is tried twice.
        for piece in self._middle:
            position = text.find(piece, start, end)
            if position < 0:
                return False
            start = position + len(piece)
        return True

    def may_match_below(self, prefix: str) -> bool:
        """Say whether some text that begins with `prefix` may match; only what stands before the first `*` is asked."""
        if self._suffix is None:
            return self._prefix.startswith(prefix)
        return self._prefix.startswith(prefix) or prefix.startswith(self._prefix)


class AllowList:
    """What one kind of request may be about."""

    __slots__ = ("_cached", "_globs")

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._globs = tuple(Glob(pattern) for pattern in patterns)
        self._cached: dict[str, bool] = {}

    def allows(self, text: str) -> bool:
        """Say whether one of the globs matches."""
        is_allowed = self._cached.get(text)
        if is_allowed is None:
            if len(self._cached) >= _MAX_CACHED:
                self._cached.clear()
            is_allowed = self._cached[text] = any(glob.matches(text) for glob in self._globs)
        return is_allowed

    def may_allow_below(self, prefix: str) -> bool:
        """Say whether something that begins with `prefix` may be allowed."""
        return any(glob.may_match_below(prefix) for glob in self._globs)

    def check(self, action: str, text: str) -> None:
        """Refuse what is not allowed."""
        if not self.allows(text):
            raise Refusal(Reason.DENIED, f"you may not {action} {text}")


def compile_allow_list(patterns: tuple[str, ...]) -> AllowList | None:
    """Return the list, or None for one that allows everything, so that nobody need ask it."""
    return None if set(ANY_NAME) & set(patterns) else AllowList(patterns)


class Access:
    """The rights of one identity; shared by all its sessions. A list that is None allows everything."""

    __slots__ = (
        "_callable_by_name",
        "_granted_by_name",
        "call",
        "close",
        "offer",
        "permissions",
        "publish",
        "pull",
        "push",
        "subscribe",
    )

    def __init__(self, permissions: Permissions) -> None:
        self.permissions = permissions
        """As the operator wrote them."""
        self.call = compile_allow_list(permissions.call)
        self.offer = compile_allow_list(permissions.offer)
        self.publish = compile_allow_list(permissions.publish)
        self.subscribe = compile_allow_list(permissions.subscribe)
        self.push = compile_allow_list(permissions.push)
        self.pull = compile_allow_list(permissions.pull)
        self.close = compile_allow_list(permissions.close)
        self._granted_by_name = AllowList(tuple(pattern for pattern in permissions.offer if pattern.strip("*")))
        """What the operator grants by name: such names may be shared with other identities."""
        self._callable_by_name = AllowList(tuple(pattern for pattern in permissions.call if pattern.strip("*")))

    def check_publish(self, topic: Topic) -> None:
        """Refuse a topic that is not allowed."""
        if self.publish is not None:
            self.publish.check("publish to", topic_text(topic))

    def may_subscribe(self, pattern: Pattern) -> bool:
        """Say whether all that a pattern can match is allowed."""
        return self.subscribe is None or all(map(self.subscribe.allows, pattern_texts(pattern)))

    def may_register(self, method: str, *, route: bool) -> bool:
        """Say whether a method is allowed, or all that can be below a route."""
        return self.offer is None or self.offer.allows(_pattern_subject(method, route=route))

    def is_granted_by_name(self, method: str, *, route: bool) -> bool:
        """Say whether a method, or all that can be below a route, is allowed by another pattern than `*`."""
        return self._granted_by_name.allows(_pattern_subject(method, route=route))

    def check_callable_by_name(self, method: str) -> None:
        """Refuse a method that no pattern other than `*` allows: `*` is the default, so nobody has decided that."""
        if not self._callable_by_name.allows(method):
            raise Refusal(
                Reason.DENIED, f"you may not call {method}: `*` does not allow it, only a pattern that names it"
            )

    def check_queue(self, action: str, queue: str) -> None:
        """Refuse to push to a queue, or to pull from it, if that is not allowed."""
        allowed = self.push if action == "push" else self.pull
        if allowed is not None:
            allowed.check("push to queue" if action == "push" else "pull from queue", queue)


def _pattern_subject(method: str, *, route: bool) -> str:
    """Return a name as globs see it."""
    return f"{method}.*" if route else method


def topic_text(topic: Topic) -> str:
    """Return a topic as globs see it."""
    try:
        return spell(topic, UMQ)
    except BadTopic:  # made in this process, and never read from a wire
        return ".".join(topic)


def pattern_texts(pattern: Pattern) -> list[str]:
    """Return a pattern as globs see it: every wildcard as `*`, which only the `*` of a glob matches.

    So whatever the pattern matches, the glob that allows it matches too. A pattern that ends in `#` matches the topic
    before it as well, and is two texts.
    """
    levels: tuple[SegmentPattern, ...] = tuple(("", "") if level == ANY_SEGMENT else level for level in pattern.levels)
    try:
        text = spell_pattern(Pattern(levels), UMQ) if levels else ""
    except BadTopic:
        text = ".".join("*".join(level) for level in levels)
    if not pattern.matches_deeper:
        return [text]
    return [text, f"{text}.*"] if text else ["*"]


def describe_pattern(pattern: Pattern) -> str:
    """Return a pattern as one text for people: `*` is within a segment, `#` at the end any number of segments."""
    text = pattern_texts(pattern)[0]
    return text if not pattern.matches_deeper else f"{text}.#" if pattern.levels else "#"
