"""The methods that are called, and their answers."""

from typing import Final

METHOD: Final = "chaos.methods"
"""It answers each number with the same."""
STAMPED: Final = "chaos.stamped"
"""Its answer says which run of the method made it, so that answers of two runs differ. Raw services alone offer it."""


def answer_to(number: int) -> dict[str, object]:
    """Return what the method answers."""
    return {"n": number, "square": number * number}


def is_answer_to(number: int, answer: object) -> bool:
    """Return whether an answer is the right one, with a stamp or without."""
    return isinstance(answer, dict) and {name: answer[name] for name in answer if name != "run"} == answer_to(number)
