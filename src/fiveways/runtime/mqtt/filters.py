"""Whether filters of MQTT share a topic."""

from fiveways.model.topics import Pattern


def filters_overlap(one: Pattern, other: Pattern) -> bool:
    """Say whether there is a topic that both match."""
    if _excludes_system_topic(one, other) or _excludes_system_topic(other, one):
        return False
    for mine, theirs in zip(one.levels, other.levels, strict=False):
        if mine and theirs and mine != theirs:
            return False
    short, long = sorted((one, other), key=lambda pattern: len(pattern.levels))
    return len(short.levels) == len(long.levels) or short.matches_deeper


def _excludes_system_topic(wild: Pattern, other: Pattern) -> bool:
    """Say whether they differ in the first segment: wildcards match none that begins with `$`."""
    first = other.levels[0] if other.levels else ()
    return not (wild.levels and wild.levels[0]) and bool(first) and first[0].startswith("$")
