"""Settings of a hub: flags override variables (`FIVEWAYS_<SECTION>_<KEY>`), the TOML file, and the defaults."""

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
"""Source name of flags."""
NO_VALUES: Mapping[str, Any] = MappingProxyType({})
_log = logging.getLogger("fiveways.settings")


SECTIONS: Mapping[str, type] = MappingProxyType(
    {item.name: type(getattr(Settings(), item.name)) for item in dataclasses.fields(Settings) if item.name != "origin"}
)


class ExposedHubError(SettingsError):
    """The hub would be reachable from other machines and admit all peers."""


class LoadedSettings(NamedTuple):
    """Settings, the locations of values that are not defaults, and warnings."""

    settings: Settings
    locations: Mapping[str, SettingLocation]
    warnings: tuple[str, ...]


def load(
    path: Path | str | None = None, env: Mapping[str, str] = NO_VALUES, flags: Mapping[str, object] = NO_VALUES
) -> Settings:
    """Return the settings, and log warnings about them.

    Args:
        path: TOML file, if there is one.
        env: Environment, usually `os.environ`.
        flags: Values by setting name, such as `server.port`.

    Raises:
        SettingsError: The settings are invalid.
    """
    loaded = read_settings(path, env, flags)
    for warning in loaded.warnings:
        _log.warning(warning)
    return loaded.settings


def load_again(settings: Settings) -> Settings:
    """Load settings again from the same file, with the environment and flags of the first time.

    Raises:
        SettingsError: The new settings are invalid; the old ones remain usable.
    """
    origin = settings.origin
    return settings if origin is None else load(origin.path, origin.env, origin.flags)


def read_settings(
    path: Path | str | None = None, env: Mapping[str, str] = NO_VALUES, flags: Mapping[str, object] = NO_VALUES
) -> LoadedSettings:
    """Return the settings with locations and warnings; see `load`."""
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
    """Collector of values; each source overrides those before it."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.values: dict[str, dict[str, Any]] = {}
        self.locations: dict[str, SettingLocation] = {}
        self.warnings: list[str] = []

    def read_file(self) -> None:
        if self.path is None:
            return
        tree, location = settings_file.read_toml(self.path)
        for section, table in tree.items():
            if section not in SECTIONS:
                raise _unknown_section_error(section, table, location.child(section))
            if not isinstance(table, dict):
                raise location.child(section).error(f"{section} must be a table, written [{section}]", section)
            for key, value in table.items():
                self._set_value(section, key, value, location.child(section, key))

    def read_variables(self, env: Mapping[str, str]) -> None:
        for section in SECTIONS:
            for key, text in settings_file.environment_variables(env, section).items():
                self._set_value(section, key, text, SettingLocation(f"FIVEWAYS_{section}_{key}".upper()), is_text=True)

    def read_flags(self, flags: Mapping[str, object]) -> None:
        location = SettingLocation(COMMAND_LINE_SOURCE)
        for name, value in flags.items():
            section, _, key = name.partition(".")
            if section not in SECTIONS:
                raise _unknown_section_error(section, {}, location)
            self._set_value(section, key, value, location, is_text=isinstance(value, str))

    def read_password(self) -> None:
        """Read the broker's password from `mqtt.password_file`, if set."""
        values = self.values.get("mqtt", {})
        location = self.locations.get("mqtt.password_file") or self.locations.get("mqtt.password")
        if location is not None:
            section = SettingLocation(location.source, location.text, location.key[:1])
            values["password"] = self._read_secret(values, "password", "mqtt.password", "[mqtt]", section)

    def _set_value(
        self, section: str, key: str, value: object, location: SettingLocation, *, is_text: bool = False
    ) -> None:
        types = _field_types(SECTIONS[section])
        name = f"{section}.{key}"
        if key not in types:
            raise location.error(f"unknown setting {name}{_suggestion(key, types, section)}", name)
        if is_text:
            value = parse_text(str(value), types[key], location, name)
        converted = (
            self._parse_identities(value, location)
            if name == "auth.identity"
            else convert(value, types[key], location, name)
        )
        self.values.setdefault(section, {})[key] = converted
        self.locations[name] = location

    def _parse_identities(self, tables: object, location: SettingLocation) -> tuple[IdentitySettings, ...]:
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise location.error(
                "auth.identity must be a list of tables, each written [[auth.identity]]", "auth.identity"
            )
        identities = [self._parse_identity(table, location.child(number)) for number, table in enumerate(tables)]
        for number, identity in enumerate(identities):
            for other in identities[:number]:
                if identity.name == other.name:
                    raise location.child(number).error(f"duplicate identity {identity.name!r}", "auth.identity.name")
                if identity.token and identity.token == other.token:
                    text = f"{identity.name!r} and {other.name!r} have the same token"
                    raise location.child(number).error(text, "auth.identity.token")
        return tuple(identities)

    def _parse_identity(self, table: dict[str, object], location: SettingLocation) -> IdentitySettings:
        types = _field_types(IdentitySettings)
        for key in table:
            if key not in types:
                text = f"unknown setting auth.identity.{key}{_suggestion(key, types, 'auth.identity')}"
                raise location.child(key).error(text, f"auth.identity.{key}")
        if "name" not in table:
            raise location.error("auth.identity.name is missing", "auth.identity.name")
        values: dict[str, Any] = {
            key: convert(value, types[key], location.child(key), f"auth.identity.{key}") for key, value in table.items()
        }
        for key in ("token", "secret"):
            values[key] = self._read_secret(values, key, f"auth.identity.{key}", repr(values["name"]), location)
        if not values["token"] and not values["secret"]:
            text = f"{values['name']!r} needs one of token, token_file, secret, secret_file"
            raise location.error(text, "auth.identity")
        return IdentitySettings(**values)

    def _read_secret(
        self, values: Mapping[str, Any], key: str, setting: str, owner: str, location: SettingLocation
    ) -> Secret:
        """Return a secret from its setting or file."""
        file_key = f"{key}_file"
        if key in values and values.get(file_key):
            raise location.child(file_key).error(f"{owner} has both {key} and {file_key}", setting)
        if not values.get(file_key):
            secret: Secret = values.get(key, NO_SECRET)
            if secret and self.path is not None and location.text:
                self._warn_if_open(self.path, f"holds the {key} of {owner}")
            return secret
        path = (self.path.parent if self.path is not None else Path()) / str(values[file_key])
        try:
            text = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
            raise location.child(file_key).error(f"cannot read {path}: {reason}", f"{setting}_file") from exc
        if not text:
            raise location.child(file_key).error(f"{path} is empty", f"{setting}_file")
        self._warn_if_open(path, f"holds the {key} of {owner}")
        return Secret(text)

    def _warn_if_open(self, path: Path, content: str) -> None:
        warning = f"{path} {content}, and every user of this machine can read it: chmod o= {path}"
        if path.stat().st_mode & stat.S_IROTH and warning not in self.warnings:
            self.warnings.append(warning)


def _field_types(section: type) -> dict[str, object]:
    """Return the types of a section by key."""
    hints = get_type_hints(section, include_extras=True)
    return {item.name: hints[item.name] for item in dataclasses.fields(section)}


def _suggestion(key: str, known: Mapping[str, object], section: str) -> str:
    if owners := list(_sections_with_key(key)):
        return f"; it belongs to {' and '.join(owners)}"
    if similar := get_close_matches(key, known, n=1):
        return f"; did you mean {section}.{similar[0]}?"
    return f"; [{section}] has {', '.join(known)}"


def _unknown_section_error(section: str, table: object, location: SettingLocation) -> SettingsError:
    if not isinstance(table, dict) and (owners := list(_sections_with_key(section))):
        return location.error(f"{section} must be in {' or '.join(owners)}", section)
    similar = get_close_matches(section, SECTIONS, n=1)
    sections = ", ".join(f"[{known}]" for known in SECTIONS)
    hint = f"did you mean [{similar[0]}]?" if similar else f"the sections are {sections}"
    return location.error(f"unknown section [{section}]; {hint}", section)


def _sections_with_key(key: str) -> Iterator[str]:
    return (f"[{section}]" for section, kind in SECTIONS.items() if key in _field_types(kind))


def _check_exposure(settings: Settings, locations: Mapping[str, SettingLocation]) -> None:
    """Raise ExposedHubError if all peers of the network would be admitted by accident."""
    host, auth = settings.server.host, settings.auth
    if is_loopback(host) or auth.identity or auth.anonymous == "always":
        return
    location = locations["server.host"]
    raise ExposedHubError(
        f"server.host = {host!r} makes the hub reachable from other machines, but no identity is configured: "
        'add an [[auth.identity]] with a token or a secret, or set auth.anonymous = "always" to admit everybody, '
        'or keep server.host = "127.0.0.1"',
        source=location.source,
        line=location.line(),
        key="server.host",
    )


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can reach `host`. Of names, only localhost is certain."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
