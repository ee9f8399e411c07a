"""Address and credentials of an MQTT broker."""

from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote, urlsplit

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_FORM: Final = "a broker's URL looks like mqtt://localhost:1883 or mqtts://user:password@broker.example"


@dataclass(frozen=True, slots=True)
class Broker:
    """Address and credentials of a broker. `repr`, `str` and `original_url` omit the password."""

    host: str
    port: int
    tls: bool = False
    user: str = ""
    password: str = field(default="", repr=False)
    original_url: str = ""
    """URL as configured, without the password."""

    @classmethod
    def parse(cls, url: str) -> "Broker":
        """Parse `mqtt://[user[:password]@]host[:1883]`, or `mqtts://` with default port 8883.

        Raises:
            ValueError: The URL is invalid. The error text repeats nothing that may be a secret.
        """
        # Only the scheme is repeated: with a forgotten `@`, or a `/` in it, a password is parsed as the port.
        scheme, separator, _ = url.partition("://")
        if not separator or scheme.lower() not in _PORTS:
            error = f"{scheme!r} is not a URL scheme of MQTT" if separator else "the URL has no scheme"
            raise ValueError(f"{error}; {_FORM}")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValueError(f"the URL has no valid port (1 to 65535); {_FORM}") from None
        if not parts.hostname:
            raise ValueError(f"the URL names no host; {_FORM}")
        if parts.path not in {"", "/"} or parts.query or parts.fragment:
            raise ValueError(f"the URL must end after the port; {_FORM}")
        if port == 0:
            raise ValueError(f"port 0 is not valid; {_FORM}")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        for text, label in ((user, "user name"), (password, "password")):
            if not text.isprintable() or len(text.encode()) > 0xFFFF:
                raise ValueError(f"the {label} is too long or has unprintable characters; {_FORM}")
        broker = cls(parts.hostname, port or _PORTS[parts.scheme], parts.scheme == "mqtts", user, password)
        return replace(broker, original_url=str(broker))

    @property
    def address(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return f"{'mqtts' if self.tls else 'mqtt'}://{user}{self.address}"
