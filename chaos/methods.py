"""The methods that the requesters call, and their results."""

from typing import Final

METHOD: Final = "chaos.methods"
"""Returns the same result for the same number."""
STAMPED: Final = "chaos.stamped"
"""Its result has the number of the run, so results of two runs differ. Only raw services register it."""


def answer_to(number: int) -> dict[str, object]:
    """Return the result of the method."""
    return {"n": number, "square": number * number}


def is_answer_to(number: int, answer: object) -> bool:
    """Return whether a result is correct, with or without the number of the run."""
    return isinstance(answer, dict) and {name: answer[name] for name in answer if name != "run"} == answer_to(number)
