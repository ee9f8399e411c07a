"""Answers that nobody asked for, in one segment."""

import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.arrow_schemas import ORPHANS
from fiveways.pipeline.days import utc_dates


def build_orphans(pieces: pa.Table) -> pa.Table:
    """Return the answers of these pieces whose leg has no request in any of them."""
    pieces = pieces.select(["run", "strays"]).filter(pieces["strays"].is_valid()).combine_chunks()
    if not len(pieces):
        return ORPHANS.empty_table()
    lists = pieces["strays"].combine_chunks()
    strays = pc.list_flatten(lists)
    run = pieces["run"].take(pc.list_parent_indices(lists))
    is_in = pc.equal(pc.struct_field(strays, "what"), "return")
    made = {
        "date": utc_dates(pc.struct_field(strays, "at")),
        "run": run,
        "direction": pc.if_else(is_in, "in", "out"),
    }
    columns = [made[name] if name in made else pc.struct_field(strays, name) for name in ORPHANS.names]
    return pa.table(columns, names=ORPHANS.names)
