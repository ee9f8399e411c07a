"""Whether filters of MQTT share a topic."""

from fiveways.model.topics import Pattern


def meet(one: Pattern, other: Pattern) -> bool:
    """Say whether there is a topic that both match."""
    if _is_apart(one, other) or _is_apart(other, one):
        return False
    for mine, theirs in zip(one.levels, other.levels, strict=False):
        if mine and theirs and mine != theirs:
            return False
    short, long = sorted((one, other), key=lambda pattern: len(pattern.levels))
    return len(short.levels) == len(long.levels) or short.rest


def _is_apart(wild: Pattern, other: Pattern) -> bool:
    """Say whether they differ in the first segment: wildcards match none that begins with `$`."""
    first = other.levels[0] if other.levels else ()
    return not (wild.levels and wild.levels[0]) and bool(first) and first[0].startswith("$")
