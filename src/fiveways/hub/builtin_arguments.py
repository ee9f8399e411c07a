"""Arguments of built-in methods."""

from collections.abc import Mapping
from typing import Final

import msgspec

from fiveways.errors import Unrepresentable
from fiveways.hub.refusal import bad_arguments
from fiveways.model.bidi_controls import find_bidi_control
from fiveways.wire.payload import Json, Payload, Text, Value

_raw_fields_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])


class BuiltInArguments:
    """Arguments of a built-in method: an object, a list in the order of the fields, or the first argument alone."""

    def __init__(self, body: Payload, *fields: str) -> None:
        self._body = body
        self._fields = fields
        value = decode_body(body)
        if isinstance(value, list):
            if len(value) > len(fields):
                raise bad_arguments(f"takes at most {len(fields)} arguments: {', '.join(fields)}")
            value = dict(zip(fields, value, strict=False))
        elif value is None:
            value = {}
        elif not isinstance(value, dict):
            value = {fields[0]: value}
        self._values: Mapping[str, object] = value

    def is_given(self, field: str) -> bool:
        """Return whether a field is present and not null."""
        return self._values.get(field) is not None

    def get_name(self, field: str, max_bytes: int) -> str:
        """Return a field with a name: a text of 1 to `max_bytes` bytes, or a number."""
        value = self._values.get(field)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not 0 < len(value.encode(errors="surrogatepass")) <= max_bytes:
            raise bad_arguments(f"needs {field} as a text of 1 to {max_bytes} bytes")
        if control := find_bidi_control(value):
            raise bad_arguments(f"{field} may not contain {control!r}")
        return value

    def get_number(self, field: str) -> int | None:
        """Return a field with a whole number; None if it is missing."""
        value = self._values.get(field)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise bad_arguments(f"needs {field} as a whole number")
        return value

    def get_flag(self, field: str) -> bool:
        """Return a boolean field; false if it is missing."""
        value = self._values.get(field)
        if value is not None and not isinstance(value, bool):
            raise bad_arguments(f"needs {field} as true or false")
        return bool(value)

    def get_payload(self, field: str) -> Payload:
        """Return a field as a message body; JSON keeps its original bytes."""
        value = self._values.get(field)
        if value is None or not isinstance(self._body, Json | Text):
            return Value(value)
        raw_fields = _raw_fields_decoder.decode(self._body.json())
        return Json(bytes(raw_fields[field] if isinstance(raw_fields, dict) else raw_fields[self._fields.index(field)]))


def decode_body(body: Payload) -> object:
    """Return the value of a body; raise Refusal if it has none."""
    try:
        return body.value()
    except Unrepresentable as exc:
        raise bad_arguments(str(exc)) from exc
