"""Where a broker is, and who we are there."""

from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote, urlsplit

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_FORM: Final = "a broker's URL looks like mqtt://localhost:1883 or mqtts://user:password@broker.example"


@dataclass(frozen=True, slots=True)
class Broker:
    """Where a broker is. Neither `repr` nor `str` shows the password, nor does `given`."""

    host: str
    port: int
    tls: bool = False
    user: str = ""
    password: str = field(default="", repr=False)
    original_url: str = ""
    """As somebody wrote it, but for the password."""

    @classmethod
    def parse(cls, url: str) -> "Broker":
        """Read `mqtt://[user[:password]@]host[:1883]`, or `mqtts://` with 8883.

        Raises:
            ValueError: it leads to no broker. The sentence says nothing of what is before the `@`, nor of what may be.
        """
        # Only what surely is no secret is repeated: a forgotten `@` or a `/` in a password makes a "port" of it.
        scheme, separator, _ = url.partition("://")
        if not separator or scheme.lower() not in _PORTS:
            said = f"{scheme!r} is no scheme of a broker" if separator else "the URL has no scheme"
            raise ValueError(f"{said}; {_FORM}")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValueError(f"the URL has no port from 1 to 65535 where one should be; {_FORM}") from None
        if not parts.hostname:
            raise ValueError(f"the URL names no host; {_FORM}")
        if parts.path not in {"", "/"} or parts.query or parts.fragment:
            raise ValueError(f"the URL goes on behind the port, where MQTT has nothing; {_FORM}")
        if port == 0:
            raise ValueError(f"no broker is at port 0; {_FORM}")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        for text, what in ((user, "user name"), (password, "password")):
            if not text.isprintable() or len(text.encode()) > 0xFFFF:
                raise ValueError(f"MQTT cannot carry such a {what}; {_FORM}")
        broker = cls(parts.hostname, port or _PORTS[parts.scheme], parts.scheme == "mqtts", user, password)
        return replace(broker, original_url=str(broker))

    @property
    def address(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return f"{'mqtts' if self.tls else 'mqtt'}://{user}{self.address}"
