"""Rows that know all there is to know of an operation, as calls."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.arrow_schemas import CALLS
from fiveways.pipeline.days import utc_dates
from fiveways.pipeline.pairing.message_columns import BoolArray, DictionaryColumn, Int64Array

_CANCELLED, _UNANSWERED = "cancelled", "unanswered"


def build_calls(rows: pa.Table) -> pa.Table:
    """Return the calls among these rows, which have the columns of `MERGED`; texts may be in dictionaries."""
    is_call = _is_call(rows)
    rows = rows.combine_chunks() if is_call.all() else rows.filter(pa.array(is_call)).combine_chunks()
    if not len(rows):
        return CALLS.empty_table()
    forwarded = _count_column(rows, "forwards") > 0
    returned_at = rows["returned_at"] if forwarded.all() else _null_unless(forwarded, rows["returned_at"])
    durations = DurationCounter(len(rows))
    latency = durations.between(rows["requested_at"], rows["answered_at"])
    callee = durations.between(rows["forwarded_at"], returned_at)
    hub = durations.between(callee, latency)
    is_callees = _is_callee_leg(rows)
    made = {
        # A call without a request is known by a forward.
        "date": utc_dates(_coalesce_texts(rows["requested_at"], rows["forwarded_at"])),
        "method": _coalesce_texts(rows["method"], rows["callee_method"]),
        "returned_at": returned_at,
        "outcome": _outcomes(rows, is_callees),
        "reason": _first_answer_column(rows, is_callees, "reason"),
        "code": _first_answer_column(rows, is_callees, "code"),
        "returns": pa.array(_count_column(rows, "returns") * forwarded),
        "latency_ns": latency,
        "callee_ns": callee,
        "hub_ns": hub,
        "negative_durations": pa.array(durations.negative),
    }
    return pa.table([made[name] if name in made else rows[name] for name in CALLS.names], names=CALLS.names)


class DurationCounter:
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
        return _null_unless(~is_negative, spent)


def _is_call(rows: pa.Table) -> BoolArray:
    """Say which rows are calls; callbacks, publications and requests for descriptions are none."""
    asked, forwarded = _count_column(rows, "attempts") > 0, _count_column(rows, "forwards") > 0
    return np.asarray(asked | (forwarded & (_count_column(rows, "others_in") == 0)))


def _is_callee_leg(rows: pa.Table) -> BoolArray:
    """Say which rows are of the callee's leg alone, where no operation ties it to the caller's."""
    leg = DictionaryColumn(rows["leg"])
    return np.asarray(np.array([*(name == "callee" for name in leg.texts), False], np.bool_)[leg.codes])


def _outcomes(rows: pa.Table, is_callees: BoolArray) -> pa.DictionaryArray:
    """Return how each call ended: as the caller was told, or where only the callee's leg is known, as it said."""
    status, returned = DictionaryColumn(rows["status"]), DictionaryColumn(rows["returned_status"])
    words = [*status.texts, *returned.texts, _CANCELLED, _UNANSWERED]
    answered, cancelled = _count_column(rows, "answers") > 0, rows["cancelled_at"].is_valid().to_numpy()
    told = np.where(answered, status.codes, np.where(cancelled, len(words) - 2, -1))
    said = np.where(returned.codes < 0, -1, returned.codes + len(status.texts))
    code = np.where(is_callees, said, told)
    code = np.where(code < 0, len(words) - 1, code)
    # A word may be there twice.
    place = {word: number for number, word in reversed(list(enumerate(words)))}
    code = np.array([place[word] for word in words], np.int32)[code]
    return pa.DictionaryArray.from_arrays(pa.array(code), pa.array(words, pa.string()))


def _first_answer_column(rows: pa.Table, is_callees: BoolArray, name: str) -> pa.ChunkedArray | pa.Array:
    """Return a column of the first answer: of that to the caller, or of the callee's where only its leg is known."""
    if not is_callees.any():
        return rows[name]
    return pc.if_else(
        pa.array(is_callees), _decode_dictionary(rows[f"returned_{name}"]), _decode_dictionary(rows[name])
    )


def _coalesce_texts(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.ChunkedArray:
    return first if not first.null_count else pc.coalesce(_decode_dictionary(first), _decode_dictionary(second))


def _decode_dictionary(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return texts.cast(pa.string()) if pa.types.is_dictionary(texts.type) else texts


def _null_unless(wanted: BoolArray, values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pa.array(wanted), values, pa.scalar(None, values.type))


def _count_column(rows: pa.Table, name: str) -> Int64Array:
    return np.asarray(rows[name].to_numpy())
