"""Everything an operator can set: what there is, where it comes from, and what it means."""
