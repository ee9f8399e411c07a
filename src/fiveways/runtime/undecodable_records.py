"""Store records with a valid checksum that this version of the hub cannot decode."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fiveways.hub.stored_messages import decode_answer, decode_call
from fiveways.store import errors
from fiveways.store.contents import StoreContents


def check_row(table: str, row: tuple[Any, ...]) -> None:
    """Decode a row as read by `fiveways.store.integrity`; raise some exception if that fails."""
    if table == "log" and row[5] is not None:
        (decode_answer if row[1] else decode_call)(row[3], row[5])
    elif table == "retained":
        msgspec.json.decode(row[0], type=list[str])


@contextmanager
def name_undecodable_record(path: Path, loaded: StoreContents) -> Iterator[None]:
    """Convert a decoding error into one that names the record."""
    try:
        yield
    except Exception as exc:
        for record, decode in _decoders(loaded):
            try:
                decode()
            except Exception as error:  # noqa: BLE001  any error means that this record cannot be decoded
                raise errors.damage_error(path, f"{path} is damaged: {record} cannot be decoded ({error})") from exc
        raise


def _decoders(loaded: StoreContents) -> Iterator[tuple[str, Callable[[], object]]]:
    for request in loaded.requests:
        yield f"the request {request.key} of peer {request.peer}", partial(decode_call, request.key, request.payload)
    for answer in loaded.answers:
        yield f"the answer {answer.key} of peer {answer.peer}", partial(decode_answer, answer.key, answer.payload)
    for value in loaded.retained:
        yield f"the topic {value.topic}", partial(msgspec.json.decode, value.topic, type=list[str])
