"""Rows that know all there is to know of an operation, as calls."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.columns import CALLS
from fiveways.pipeline.days import dates_of
from fiveways.pipeline.pieces.columns import Coded, Flags, Longs

_CANCELLED, _UNANSWERED = "cancelled", "unanswered"


def calls_of(rows: pa.Table) -> pa.Table:
    """Return the calls among these rows, which have the columns of `MERGED`; texts may be in dictionaries."""
    is_call = _are_calls(rows)
    rows = rows.combine_chunks() if is_call.all() else rows.filter(pa.array(is_call)).combine_chunks()
    if not len(rows):
        return CALLS.empty_table()
    forwarded = _counts(rows, "forwards") > 0
    returned_at = rows["returned_at"] if forwarded.all() else _where(forwarded, rows["returned_at"])
    durations = Durations(len(rows))
    latency = durations.between(rows["requested_at"], rows["answered_at"])
    callee = durations.between(rows["forwarded_at"], returned_at)
    hub = durations.between(callee, latency)
    is_callees = _are_callees(rows)
    made = {
        # A call without a request is known by a forward.
        "date": dates_of(_either(rows["requested_at"], rows["forwarded_at"])),
        "method": _either(rows["method"], rows["callee_method"]),
        "returned_at": returned_at,
        "outcome": _outcomes(rows, is_callees),
        "reason": _said(rows, is_callees, "reason"),
        "code": _said(rows, is_callees, "code"),
        "returns": pa.array(_counts(rows, "returns") * forwarded),
        "latency_ns": latency,
        "callee_ns": callee,
        "hub_ns": hub,
        "negative_durations": pa.array(durations.negative),
    }
    return pa.table([made[name] if name in made else rows[name] for name in CALLS.names], names=CALLS.names)


class Durations:
    """Durations of rows. Where the clock was set back between two times, it is unknown how long that was."""

    def __init__(self, rows: int) -> None:
        self.negative = np.zeros(rows, np.int32)
        """How many durations of each row came out negative, and are null instead."""

    def between(self, begin: pa.ChunkedArray, end: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return how long it was from one time to the other; null if that is negative."""
        spent = pc.subtract(end, begin)
        is_negative = pc.fill_null(pc.less(spent, 0), False).to_numpy()
        if not is_negative.any():
            return spent
        self.negative += is_negative
        return _where(~is_negative, spent)


def _are_calls(rows: pa.Table) -> Flags:
    """Say which rows are calls; callbacks, publications and requests for descriptions are none."""
    asked, forwarded = _counts(rows, "attempts") > 0, _counts(rows, "forwards") > 0
    return np.asarray(asked | (forwarded & (_counts(rows, "others_in") == 0)))


def _are_callees(rows: pa.Table) -> Flags:
    """Say which rows are of the callee's leg alone, where no operation ties it to the caller's."""
    leg = Coded(rows["leg"])
    return np.asarray(np.array([*(name == "callee" for name in leg.names), False], np.bool_)[leg.codes])


def _outcomes(rows: pa.Table, is_callees: Flags) -> pa.DictionaryArray:
    """Return how each call ended: as the caller was told, or where only the callee's leg is known, as it said."""
    status, returned = Coded(rows["status"]), Coded(rows["returned_status"])
    words = [*status.names, *returned.names, _CANCELLED, _UNANSWERED]
    answered, cancelled = _counts(rows, "answers") > 0, rows["cancelled_at"].is_valid().to_numpy()
    told = np.where(answered, status.codes, np.where(cancelled, len(words) - 2, -1))
    said = np.where(returned.codes < 0, -1, returned.codes + len(status.names))
    code = np.where(is_callees, said, told)
    code = np.where(code < 0, len(words) - 1, code)
    # A word may be there twice.
    place = {word: number for number, word in reversed(list(enumerate(words)))}
    code = np.array([place[word] for word in words], np.int32)[code]
    return pa.DictionaryArray.from_arrays(pa.array(code), pa.array(words, pa.string()))


def _said(rows: pa.Table, is_callees: Flags, name: str) -> pa.ChunkedArray | pa.Array:
    """Return a column of the first answer: of that to the caller, or of the callee's where only its leg is known."""
    if not is_callees.any():
        return rows[name]
    return pc.if_else(pa.array(is_callees), _plain(rows[f"returned_{name}"]), _plain(rows[name]))


def _either(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.ChunkedArray:
    return first if not first.null_count else pc.coalesce(_plain(first), _plain(second))


def _plain(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return texts.cast(pa.string()) if pa.types.is_dictionary(texts.type) else texts


def _where(wanted: Flags, values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pa.array(wanted), values, pa.scalar(None, values.type))


def _counts(rows: pa.Table, name: str) -> Longs:
    return np.asarray(rows[name].to_numpy())
