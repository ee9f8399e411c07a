"""The variables of a UMQ conversation: each side sets its own and reads those of the other side."""

from collections import Counter

from fiveways.errors import Reason
from fiveways.wire.limits import Limits


class Variables:
    """`local` are our variables as the peer knows them, `remote` are the peer's."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.local: dict[str, str] = {}
        self.remote: dict[str, str] = {}
        self._requested: Counter[str] = Counter()
        """Names in pending requests of the peer to set a variable."""

    def refusal(self, name: str) -> tuple[Reason, str] | None:
        """Return the reason why the peer cannot set a variable of that name, if any."""
        if len(name.encode(errors="replace")) > self._limits.max_name:
            return Reason.BAD_ARGUMENTS, "the variable name is too long"
        names = self.remote.keys() | self._requested.keys()
        if name not in names and len(names) >= self._limits.max_variables:
            return Reason.OVERLOADED, "too many variables"
        return None

    def request(self, name: str) -> None:
        """Record a request for a name, which counts towards the limit."""
        self._requested[name] += 1

    def grant(self, name: str, text: str) -> None:
        """Record the value of a granted variable."""
        self.deny(name)
        self.remote[name] = text

    def deny(self, name: str) -> None:
        """Remove a request for a name."""
        self._requested -= Counter([name])
