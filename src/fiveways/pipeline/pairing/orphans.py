"""Final responses without a request, within one segment."""

import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.arrow_schemas import ORPHANS
from fiveways.pipeline.days import utc_dates


def build_orphans(partial_calls: pa.Table) -> pa.Table:
    """Return the final responses in partial calls on a side without a request."""
    partial_calls = partial_calls.select(["run", "strays"]).filter(partial_calls["strays"].is_valid()).combine_chunks()
    if not len(partial_calls):
        return ORPHANS.empty_table()
    lists = partial_calls["strays"].combine_chunks()
    strays = pc.list_flatten(lists)
    run = partial_calls["run"].take(pc.list_parent_indices(lists))
    is_in = pc.equal(pc.struct_field(strays, "what"), "return")
    columns = {
        "date": utc_dates(pc.struct_field(strays, "at")),
        "run": run,
        "direction": pc.if_else(is_in, "in", "out"),
    }
    arrays = [columns[name] if name in columns else pc.struct_field(strays, name) for name in ORPHANS.names]
    return pa.table(arrays, names=ORPHANS.names)
