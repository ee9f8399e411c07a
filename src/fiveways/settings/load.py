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

from fiveways.settings import sources as settings_file
from fiveways.settings.sections import NO_SECRET, IdentitySettings, Secret, Settings, SettingsOrigin
from fiveways.settings.sources import SettingLocation, SettingsError
from fiveways.settings.values import convert, parse_text

COMMAND_LINE_SOURCE = "command line"
"""The place of flags."""
NO_VALUES: Mapping[str, Any] = MappingProxyType({})
_log = logging.getLogger("fiveways.settings")


SECTIONS: Mapping[str, type] = MappingProxyType(
    {each.name: type(getattr(Settings(), each.name)) for each in dataclasses.fields(Settings) if each.name != "origin"}
)


class ExposedHubError(SettingsError):
    """The hub could be reached from other machines, and would let everybody in."""


class LoadedSettings(NamedTuple):
    """Settings, where each one came from that is not the default, and what is odd but no mistake."""

    settings: Settings
    locations: Mapping[str, SettingLocation]
    warnings: tuple[str, ...]


def load(
    path: Path | str | None = None, env: Mapping[str, str] = NO_VALUES, flags: Mapping[str, object] = NO_VALUES
) -> Settings:
    """Return the settings, and log what is odd about them.

    Args:
        path: the TOML file, if there is one.
        env: the environment, usually `os.environ`.
        flags: values by the name of their setting, such as `server.port`.

    Raises:
        SettingsError: they cannot be used.
    """
    loaded = read_settings(path, env, flags)
    for warning in loaded.warnings:
        _log.warning(warning)
    return loaded.settings


def load_again(settings: Settings) -> Settings:
    """Read settings once more from where they came; the environment and the flags are as they were.

    Raises:
        SettingsError: they cannot be used now; the old ones still can.
    """
    origin = settings.origin
    return settings if origin is None else load(origin.path, origin.env, origin.flags)


def read_settings(
    path: Path | str | None = None, env: Mapping[str, str] = NO_VALUES, flags: Mapping[str, object] = NO_VALUES
) -> LoadedSettings:
    """Return the settings together with what is known about them; see `load`."""
    reader = _SettingsReader(None if path is None else Path(path))
    reader.read_file()
    reader.read_variables(env)
    reader.read_flags(flags)
    reader.read_password()
    sections = {name: section(**reader.values.get(name, {})) for name, section in SECTIONS.items()}
    settings = Settings(**sections, origin=SettingsOrigin(reader.path, dict(env), dict(flags)))
    _check_exposure(settings, reader.locations)
    return LoadedSettings(settings, reader.locations, tuple(reader.warnings))


class _SettingsReader:
    """Collects the values; each source overrides those before it."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.values: dict[str, dict[str, Any]] = {}
        self.locations: dict[str, SettingLocation] = {}
        self.warnings: list[str] = []

    def read_file(self) -> None:
        if self.path is None:
            return
        tree, place = settings_file.read_toml(self.path)
        for section, table in tree.items():
            if section not in SECTIONS:
                raise _unknown_section_error(section, table, place.child(section))
            if not isinstance(table, dict):
                raise place.child(section).error(f"{section} must be a table, written [{section}]", section)
            for key, value in table.items():
                self._set_value(section, key, value, place.child(section, key))

    def read_variables(self, env: Mapping[str, str]) -> None:
        for section in SECTIONS:
            for key, text in settings_file.environment_variables(env, section).items():
                self._set_value(section, key, text, SettingLocation(f"FIVEWAYS_{section}_{key}".upper()), is_text=True)

    def read_flags(self, flags: Mapping[str, object]) -> None:
        place = SettingLocation(COMMAND_LINE_SOURCE)
        for name, value in flags.items():
            section, _, key = name.partition(".")
            if section not in SECTIONS:
                raise _unknown_section_error(section, {}, place)
            self._set_value(section, key, value, place, is_text=isinstance(value, str))

    def read_password(self) -> None:
        """Read the password for the broker from its file, if it is in one."""
        values = self.values.get("mqtt", {})
        place = self.locations.get("mqtt.password_file") or self.locations.get("mqtt.password")
        if place is not None:
            section = SettingLocation(place.source, place.text, place.key[:1])
            values["password"] = self._read_secret(values, "password", "mqtt.password", "[mqtt]", section)

    def _set_value(
        self, section: str, key: str, value: object, place: SettingLocation, *, is_text: bool = False
    ) -> None:
        kinds = _field_types(SECTIONS[section])
        name = f"{section}.{key}"
        if key not in kinds:
            raise place.error(f"{name} is no setting{_suggestion(key, kinds, section)}", name)
        if is_text:
            value = parse_text(str(value), kinds[key], place, name)
        taken = (
            self._parse_identities(value, place) if name == "auth.identity" else convert(value, kinds[key], place, name)
        )
        self.values.setdefault(section, {})[key] = taken
        self.locations[name] = place

    def _parse_identities(self, tables: object, place: SettingLocation) -> tuple[IdentitySettings, ...]:
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise place.error("auth.identity must be a list of tables, each written [[auth.identity]]", "auth.identity")
        identities = [self._parse_identity(table, place.child(number)) for number, table in enumerate(tables)]
        for number, each in enumerate(identities):
            for other in identities[:number]:
                if each.name == other.name:
                    raise place.child(number).error(f"there are two identities {each.name!r}", "auth.identity.name")
                if each.token and each.token == other.token:
                    text = f"{each.name!r} and {other.name!r} have the same token"
                    raise place.child(number).error(text, "auth.identity.token")
        return tuple(identities)

    def _parse_identity(self, table: dict[str, object], place: SettingLocation) -> IdentitySettings:
        kinds = _field_types(IdentitySettings)
        for key in table:
            if key not in kinds:
                text = f"auth.identity.{key} is no setting{_suggestion(key, kinds, 'auth.identity')}"
                raise place.child(key).error(text, f"auth.identity.{key}")
        if "name" not in table:
            raise place.error("auth.identity.name is missing", "auth.identity.name")
        values: dict[str, Any] = {
            key: convert(value, kinds[key], place.child(key), f"auth.identity.{key}") for key, value in table.items()
        }
        for key in ("token", "secret"):
            values[key] = self._read_secret(values, key, f"auth.identity.{key}", repr(values["name"]), place)
        if not values["token"] and not values["secret"]:
            text = f"{values['name']!r} needs one of token, token_file, secret, secret_file"
            raise place.error(text, "auth.identity")
        return IdentitySettings(**values)

    def _read_secret(
        self, values: Mapping[str, Any], key: str, written: str, owner: str, place: SettingLocation
    ) -> Secret:
        """Return the secret itself, wherever it is."""
        name = f"{key}_file"
        if key in values and values.get(name):
            raise place.child(name).error(f"{owner} has both {key} and {name}", written)
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
            raise place.child(name).error(f"{path} cannot be read: {reason}", f"{written}_file") from exc
        if not text:
            raise place.child(name).error(f"{path} is empty", f"{written}_file")
        self._warn_if_open(path, f"holds the {key} of {owner}")
        return Secret(text)

    def _warn_if_open(self, path: Path, what: str) -> None:
        warning = f"{path} {what}, and every user of this machine can read it: chmod o= {path}"
        if path.stat().st_mode & stat.S_IROTH and warning not in self.warnings:
            self.warnings.append(warning)


def _field_types(section: type) -> dict[str, object]:
    """Return the keys of a section and their types."""
    hints = get_type_hints(section, include_extras=True)
    return {each.name: hints[each.name] for each in dataclasses.fields(section)}


def _suggestion(key: str, known: Mapping[str, object], section: str) -> str:
    if owners := list(_sections_with_key(key)):
        return f"; there is one in {' and '.join(owners)}"
    if near := get_close_matches(key, known, n=1):
        return f"; did you mean {section}.{near[0]}?"
    return f"; [{section}] has {', '.join(known)}"


def _unknown_section_error(section: str, table: object, place: SettingLocation) -> SettingsError:
    if not isinstance(table, dict) and (owners := list(_sections_with_key(section))):
        return place.error(f"{section} must stand below {' or '.join(owners)}", section)
    near = get_close_matches(section, SECTIONS, n=1)
    hint = f"did you mean [{near[0]}]?" if near else f"there are {', '.join(f'[{each}]' for each in SECTIONS)}"
    return place.error(f"[{section}] is no section; {hint}", section)


def _sections_with_key(key: str) -> Iterator[str]:
    return (f"[{section}]" for section, kind in SECTIONS.items() if key in _field_types(kind))


def _check_exposure(settings: Settings, places: Mapping[str, SettingLocation]) -> None:
    """Refuse to let everybody on the network in by accident."""
    host, auth = settings.server.host, settings.auth
    if is_loopback(host) or auth.identity or auth.anonymous == "always":
        return
    place = places["server.host"]
    raise ExposedHubError(
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
