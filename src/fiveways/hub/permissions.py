"""Permissions: compiled lists of globs with a cache of decisions."""

from typing import Final

from fiveways.errors import Reason
from fiveways.hub.refusal import Refusal
from fiveways.hub.settings import ANY_NAME, Permissions
from fiveways.model.topics import ANY_SEGMENT, UMQ, BadTopic, Pattern, SegmentPattern, Topic, spell, spell_pattern

_MAX_CACHED: Final = 4096
"""Cached decisions of one list."""


class Glob:
    """A pattern in which each `*` stands for any characters, none or dots included."""

    __slots__ = ("_middle", "_prefix", "_suffix")

    def __init__(self, pattern: str) -> None:
        self._prefix, *rest = pattern.split("*")
        self._middle = tuple(rest[:-1])
        self._suffix = rest[-1] if rest else None
        """The text behind the last `*`; None if there is no `*`."""

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        prefix, suffix = self._prefix, self._suffix
        if suffix is None:
            return text == prefix
        start, end = len(prefix), len(text) - len(suffix)
        if start > end or not text.startswith(prefix) or not text.endswith(suffix):
            return False
        # The leftmost position of a piece leaves most room for the next one, so no backtracking is necessary.
        for part in self._middle:
            position = text.find(part, start, end)
            if position < 0:
                return False
            start = position + len(part)
        return True

    def may_match_below(self, prefix: str) -> bool:
        """Return whether a text that begins with `prefix` may match; only the text before the first `*` is compared."""
        if self._suffix is None:
            return self._prefix.startswith(prefix)
        return self._prefix.startswith(prefix) or prefix.startswith(self._prefix)


class AllowList:
    """The allowed names for one kind of request."""

    __slots__ = ("_cached", "_globs")

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._globs = tuple(Glob(pattern) for pattern in patterns)
        self._cached: dict[str, bool] = {}

    def allows(self, text: str) -> bool:
        """Return whether a glob matches."""
        is_allowed = self._cached.get(text)
        if is_allowed is None:
            if len(self._cached) >= _MAX_CACHED:
                self._cached.clear()
            is_allowed = self._cached[text] = any(glob.matches(text) for glob in self._globs)
        return is_allowed

    def may_allow_below(self, prefix: str) -> bool:
        """Return whether a name that begins with `prefix` may be allowed."""
        return any(glob.may_match_below(prefix) for glob in self._globs)

    def check(self, action: str, text: str) -> None:
        """Raise Refusal if a name is not allowed."""
        if not self.allows(text):
            raise Refusal(Reason.DENIED, f"you may not {action} {text}")


def compile_allow_list(patterns: tuple[str, ...]) -> AllowList | None:
    """Return the list; None if it allows everything, so that no check is necessary."""
    return None if set(ANY_NAME) & set(patterns) else AllowList(patterns)


class Access:
    """The permissions of one identity, shared by its sessions. A list that is None allows everything."""

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
        """In the form of the configuration."""
        self.call = compile_allow_list(permissions.call)
        self.offer = compile_allow_list(permissions.offer)
        self.publish = compile_allow_list(permissions.publish)
        self.subscribe = compile_allow_list(permissions.subscribe)
        self.push = compile_allow_list(permissions.push)
        self.pull = compile_allow_list(permissions.pull)
        self.close = compile_allow_list(permissions.close)
        self._granted_by_name = AllowList(tuple(pattern for pattern in permissions.offer if pattern.strip("*")))
        """Names that the operator grants explicitly: identities may share them."""
        self._callable_by_name = AllowList(tuple(pattern for pattern in permissions.call if pattern.strip("*")))

    def check_publish(self, topic: Topic) -> None:
        """Refuse a topic without permission."""
        if self.publish is not None:
            self.publish.check("publish to", topic_text(topic))

    def may_subscribe(self, pattern: Pattern) -> bool:
        """Return whether all topics that a pattern can match are allowed."""
        return self.subscribe is None or all(map(self.subscribe.allows, pattern_texts(pattern)))

    def may_register(self, method: str, *, route: bool) -> bool:
        """Return whether a method, or every name below a route, is allowed."""
        return self.offer is None or self.offer.allows(_pattern_subject(method, route=route))

    def is_granted_by_name(self, method: str, *, route: bool) -> bool:
        """Return whether a method, or every name below a route, is allowed by another pattern than `*`."""
        return self._granted_by_name.allows(_pattern_subject(method, route=route))

    def check_callable_by_name(self, method: str) -> None:
        """Refuse a method that only `*` allows: `*` is the default, so it is not a decision of the operator."""
        if not self._callable_by_name.allows(method):
            raise Refusal(Reason.DENIED, f"you may not call {method}: a pattern must name it, `*` is not enough")

    def check_queue(self, action: str, queue: str) -> None:
        """Refuse to push to a queue, or to pull from it, without permission."""
        allowed = self.push if action == "push" else self.pull
        if allowed is not None:
            allowed.check("push to queue" if action == "push" else "pull from queue", queue)


def _pattern_subject(method: str, *, route: bool) -> str:
    return f"{method}.*" if route else method


def topic_text(topic: Topic) -> str:
    """Return a topic as text for globs."""
    try:
        return spell(topic, UMQ)
    except BadTopic:  # made in this process, and never read from a wire
        return ".".join(topic)


def pattern_texts(pattern: Pattern) -> list[str]:
    """Return a pattern as text for globs: each wildcard becomes `*`, which only a `*` of a glob matches.

    A glob that allows the text therefore allows every topic that the pattern matches. A pattern that ends in `#` also
    matches the topic before it, and becomes two texts.
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
