"""The settings of a hub: flags over variables (`FIVEWAYS_<SECTION>_<KEY>`) over the TOML file over defaults."""

import dataclasses
import ipaddress
import logging
import stat
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, get_type_hints

from fiveways.settings import file as settings_file
from fiveways.settings.file import Place, SettingsError
from fiveways.settings.sections import NO_SECRET, IdentitySettings, Origin, Secret, Settings
from fiveways.settings.values import convert, from_text

COMMAND_LINE = "command line"
"""The place of flags."""
NOTHING: Mapping[str, Any] = MappingProxyType({})
_log = logging.getLogger("fiveways.settings")


SECTIONS: Mapping[str, type] = MappingProxyType(
    {each.name: type(getattr(Settings(), each.name)) for each in dataclasses.fields(Settings) if each.name != "origin"}
)


class Exposed(SettingsError):
    """The hub could be reached from other machines, and would let everybody in."""


class Loaded(NamedTuple):
    """Settings, where each one came from that is not the default, and what is odd but no mistake."""

    settings: Settings
    places: Mapping[str, Place]
    warnings: tuple[str, ...]


def load(
    path: Path | str | None = None, env: Mapping[str, str] = NOTHING, flags: Mapping[str, object] = NOTHING
) -> Settings:
    """Return the settings, and log what is odd about them.

    Args:
        path: the TOML file, if there is one.
        env: the environment, usually `os.environ`.
        flags: values by the name of their setting, such as `server.port`.

    Raises:
        SettingsError: they cannot be used.
    """
    loaded = read(path, env, flags)
    for warning in loaded.warnings:
        _log.warning(warning)
    return loaded.settings


def again(settings: Settings) -> Settings:
    """Read settings once more from where they came; the environment and the flags are as they were.

    Raises:
        SettingsError: they cannot be used now; the old ones still can.
    """
    origin = settings.origin
    return settings if origin is None else load(origin.path, origin.env, origin.flags)


def read(
    path: Path | str | None = None, env: Mapping[str, str] = NOTHING, flags: Mapping[str, object] = NOTHING
) -> Loaded:
    """Return the settings together with what is known about them; see `load`."""
    reader = _Reader(None if path is None else Path(path))
    reader.take_file()
    reader.take_variables(env)
    reader.take_flags(flags)
    reader.take_password()
    sections = {name: section(**reader.values.get(name, {})) for name, section in SECTIONS.items()}
    settings = Settings(**sections, origin=Origin(reader.path, dict(env), dict(flags)))
    _check_exposure(settings, reader.places)
    return Loaded(settings, reader.places, tuple(reader.warnings))


class _Reader:
    """Collects the values; each source overrides those before it."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.values: dict[str, dict[str, Any]] = {}
        self.places: dict[str, Place] = {}
        self.warnings: list[str] = []

    def take_file(self) -> None:
        if self.path is None:
            return
        tree, place = settings_file.read_toml(self.path)
        for section, table in tree.items():
            if section not in SECTIONS:
                raise _unknown_section(section, table, place.below(section))
            if not isinstance(table, dict):
                raise place.below(section).error(f"{section} must be a table, written [{section}]", section)
            for key, value in table.items():
                self._take(section, key, value, place.below(section, key))

    def take_variables(self, env: Mapping[str, str]) -> None:
        for section in SECTIONS:
            for key, text in settings_file.variables(env, section).items():
                self._take(section, key, text, Place(f"FIVEWAYS_{section}_{key}".upper()), is_text=True)

    def take_flags(self, flags: Mapping[str, object]) -> None:
        place = Place(COMMAND_LINE)
        for name, value in flags.items():
            section, _, key = name.partition(".")
            if section not in SECTIONS:
                raise _unknown_section(section, {}, place)
            self._take(section, key, value, place, is_text=isinstance(value, str))

    def take_password(self) -> None:
        """Read the password for the broker from its file, if it is in one."""
        values = self.values.get("mqtt", {})
        place = self.places.get("mqtt.password_file") or self.places.get("mqtt.password")
        if place is not None:
            section = Place(place.source, place.text, place.key[:1])
            values["password"] = self._secret(values, "password", "mqtt.password", "[mqtt]", section)

    def _take(self, section: str, key: str, value: object, place: Place, *, is_text: bool = False) -> None:
        kinds = _kinds(SECTIONS[section])
        name = f"{section}.{key}"
        if key not in kinds:
            raise place.error(f"{name} is no setting{_nearest(key, kinds, section)}", name)
        if is_text:
            value = from_text(str(value), kinds[key], place, name)
        taken = self._identities(value, place) if name == "auth.identity" else convert(value, kinds[key], place, name)
        self.values.setdefault(section, {})[key] = taken
        self.places[name] = place

    def _identities(self, tables: object, place: Place) -> tuple[IdentitySettings, ...]:
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise place.error("auth.identity must be a list of tables, each written [[auth.identity]]", "auth.identity")
        identities = [self._identity(table, place.below(number)) for number, table in enumerate(tables)]
        for number, each in enumerate(identities):
            for other in identities[:number]:
                if each.name == other.name:
                    raise place.below(number).error(f"there are two identities {each.name!r}", "auth.identity.name")
                if each.token and each.token == other.token:
                    text = f"{each.name!r} and {other.name!r} have the same token"
                    raise place.below(number).error(text, "auth.identity.token")
        return tuple(identities)

    def _identity(self, table: dict[str, object], place: Place) -> IdentitySettings:
        kinds = _kinds(IdentitySettings)
        for key in table:
            if key not in kinds:
                text = f"auth.identity.{key} is no setting{_nearest(key, kinds, 'auth.identity')}"
                raise place.below(key).error(text, f"auth.identity.{key}")
        if "name" not in table:
            raise place.error("auth.identity.name is missing", "auth.identity.name")
        values: dict[str, Any] = {
            key: convert(value, kinds[key], place.below(key), f"auth.identity.{key}") for key, value in table.items()
        }
        for key in ("token", "secret"):
            values[key] = self._secret(values, key, f"auth.identity.{key}", repr(values["name"]), place)
        if not values["token"] and not values["secret"]:
            text = f"{values['name']!r} needs one of token, token_file, secret, secret_file"
            raise place.error(text, "auth.identity")
        return IdentitySettings(**values)

    def _secret(self, values: Mapping[str, Any], key: str, written: str, owner: str, place: Place) -> Secret:
        """Return the secret itself, wherever it is."""
        name = f"{key}_file"
        if key in values and values.get(name):
            raise place.below(name).error(f"{owner} has both {key} and {name}", written)
        if not values.get(name):
            given: Secret = values.get(key, NO_SECRET)
            if given and self.path is not None and place.text:
                self._warn_if_open(self.path, f"holds the {key} of {owner}")
            return given
        path = (self.path.parent if self.path is not None else Path()) / str(values[name])
        try:
            text = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
            raise place.below(name).error(f"{path} cannot be read: {reason}", f"{written}_file") from exc
        if not text:
            raise place.below(name).error(f"{path} is empty", f"{written}_file")
        self._warn_if_open(path, f"holds the {key} of {owner}")
        return Secret(text)

    def _warn_if_open(self, path: Path, what: str) -> None:
        warning = f"{path} {what}, and every user of this machine can read it: chmod o= {path}"
        if path.stat().st_mode & stat.S_IROTH and warning not in self.warnings:
            self.warnings.append(warning)


def _kinds(section: type) -> dict[str, object]:
    """Return the keys of a section and their types."""
    hints = get_type_hints(section, include_extras=True)
    return {each.name: hints[each.name] for each in dataclasses.fields(section)}


def _nearest(key: str, known: Mapping[str, object], section: str) -> str:
    if owners := list(_owners(key)):
        return f"; there is one in {' and '.join(owners)}"
    if near := get_close_matches(key, known, n=1):
        return f"; did you mean {section}.{near[0]}?"
    return f"; [{section}] has {', '.join(known)}"


def _unknown_section(section: str, table: object, place: Place) -> SettingsError:
    if not isinstance(table, dict) and (owners := list(_owners(section))):
        return place.error(f"{section} must stand below {' or '.join(owners)}", section)
    near = get_close_matches(section, SECTIONS, n=1)
    hint = f"did you mean [{near[0]}]?" if near else f"there are {', '.join(f'[{each}]' for each in SECTIONS)}"
    return place.error(f"[{section}] is no section; {hint}", section)


def _owners(key: str) -> Iterator[str]:
    return (f"[{section}]" for section, kind in SECTIONS.items() if key in _kinds(kind))


def _check_exposure(settings: Settings, places: Mapping[str, Place]) -> None:
    """Refuse to let everybody on the network in by accident."""
    host, auth = settings.server.host, settings.auth
    if is_loopback(host) or auth.identity or auth.anonymous == "always":
        return
    place = places["server.host"]
    raise Exposed(
        f"server.host = {host!r} can be reached from other machines, but nobody could prove who they are: "
        'add an [[auth.identity]] with a token or a secret, or set auth.anonymous = "always" to let everybody in, '
        'or keep server.host = "127.0.0.1"',
        place=place.source,
        line=place.line(),
        key="server.host",
    )


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach `host`. A name other than localhost may mean anything."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
