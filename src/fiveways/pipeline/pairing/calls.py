"""Conversion of complete rows of operations into calls."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.arrays import BoolArray, Int64Array
from fiveways.pipeline.arrow_schemas import CALLS
from fiveways.pipeline.days import utc_dates
from fiveways.pipeline.pairing.message_columns import DictionaryColumn

_CANCELLED, _UNANSWERED = "cancelled", "unanswered"


def build_calls(rows: pa.Table) -> pa.Table:
    """Return the calls among rows with the columns of `MERGED_CALLS`; texts may be dictionary-encoded."""
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
    is_callee_only = _is_callee_leg(rows)
    columns = {
        # A call without a request has at least a forward.
        "date": utc_dates(_coalesce_texts(rows["requested_at"], rows["forwarded_at"])),
        "method": _coalesce_texts(rows["method"], rows["callee_method"]),
        "returned_at": returned_at,
        "outcome": _outcomes(rows, is_callee_only),
        "reason": _first_answer_column(rows, is_callee_only, "reason"),
        "code": _first_answer_column(rows, is_callee_only, "code"),
        "returns": pa.array(_count_column(rows, "returns") * forwarded),
        "latency_ns": latency,
        "callee_ns": callee,
        "hub_ns": hub,
        "negative_durations": pa.array(durations.negative),
    }
    return pa.table([columns[name] if name in columns else rows[name] for name in CALLS.names], names=CALLS.names)


class DurationCounter:
    """Computation of durations; a negative one, after the clock was set back, becomes null and is counted."""

    def __init__(self, rows: int) -> None:
        self.negative = np.zeros(rows, np.int32)
        """Number of negative durations of each row."""

    def between(self, begin: pa.ChunkedArray, end: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the time from `begin` to `end`; null if it is negative."""
        spent = pc.subtract(end, begin)
        is_negative = pc.fill_null(pc.less(spent, 0), False).to_numpy()
        if not is_negative.any():
            return spent
        self.negative += is_negative
        return _null_unless(~is_negative, spent)


def _is_call(rows: pa.Table) -> BoolArray:
    """Return which rows are calls; callbacks, publications and description requests are not."""
    requested, forwarded = _count_column(rows, "attempts") > 0, _count_column(rows, "forwards") > 0
    return np.asarray(requested | (forwarded & (_count_column(rows, "others_in") == 0)))


def _is_callee_leg(rows: pa.Table) -> BoolArray:
    """Return which rows have only the callee's side, because no operation id links it to the caller's."""
    side = DictionaryColumn(rows["leg"])
    return np.asarray(np.array([*(name == "callee" for name in side.texts), False], np.bool_)[side.codes])


def _outcomes(rows: pa.Table, is_callee_only: BoolArray) -> pa.DictionaryArray:
    """Return the outcome of each call: the status sent to the caller, or with the callee's side only, the callee's."""
    status, returned = DictionaryColumn(rows["status"]), DictionaryColumn(rows["returned_status"])
    outcomes = [*status.texts, *returned.texts, _CANCELLED, _UNANSWERED]
    answered, cancelled = _count_column(rows, "answers") > 0, rows["cancelled_at"].is_valid().to_numpy()
    to_caller = np.where(answered, status.codes, np.where(cancelled, len(outcomes) - 2, -1))
    from_callee = np.where(returned.codes < 0, -1, returned.codes + len(status.texts))
    code = np.where(is_callee_only, from_callee, to_caller)
    code = np.where(code < 0, len(outcomes) - 1, code)
    # An outcome may be in the list twice.
    index = {outcome: number for number, outcome in reversed(list(enumerate(outcomes)))}
    code = np.array([index[outcome] for outcome in outcomes], np.int32)[code]
    return pa.DictionaryArray.from_arrays(pa.array(code), pa.array(outcomes, pa.string()))


def _first_answer_column(rows: pa.Table, is_callee_only: BoolArray, name: str) -> pa.ChunkedArray | pa.Array:
    """Return a column of the response to the caller, or with the callee's side only, of the callee's response."""
    if not is_callee_only.any():
        return rows[name]
    return pc.if_else(
        pa.array(is_callee_only), _decode_dictionary(rows[f"returned_{name}"]), _decode_dictionary(rows[name])
    )


def _coalesce_texts(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.ChunkedArray:
    return first if not first.null_count else pc.coalesce(_decode_dictionary(first), _decode_dictionary(second))


def _decode_dictionary(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return texts.cast(pa.string()) if pa.types.is_dictionary(texts.type) else texts


def _null_unless(valid: BoolArray, values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pa.array(valid), values, pa.scalar(None, values.type))


def _count_column(rows: pa.Table, name: str) -> Int64Array:
    return np.asarray(rows[name].to_numpy())
