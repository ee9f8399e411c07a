"""The variables of one UMQ conversation: each side sets its own, and reads the other's."""

from collections import Counter

from fiveways.errors import Reason
from fiveways.wire.limits import Limits


class Variables:
    """`local` are ours as the peer knows them, `remote` the peer's, for us to read."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.local: dict[str, str] = {}
        self.remote: dict[str, str] = {}
        self._requested: Counter[str] = Counter()
        """Names that the peer asked to set by a call which is not granted yet."""

    def refusal(self, name: str) -> tuple[Reason, str] | None:
        """Why the peer cannot have a variable of that name."""
        if len(name.encode(errors="replace")) > self._limits.max_name:
            return Reason.BAD_ARGUMENTS, "a variable's name is too long"
        names = self.remote.keys() | self._requested.keys()
        if name not in names and len(names) >= self._limits.max_variables:
            return Reason.OVERLOADED, "too many variables"
        return None

    def request(self, name: str) -> None:
        """It may be set soon, and counts from now on."""
        self._requested[name] += 1

    def grant(self, name: str, text: str) -> None:
        """It is set."""
        self.deny(name)
        self.remote[name] = text

    def deny(self, name: str) -> None:
        """It will not be set."""
        self._requested -= Counter([name])
