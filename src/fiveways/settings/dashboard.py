"""The settings of the page that the hub shows to people."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DashboardSettings:
    """The page that a browser finds under the hub's address.

    See https://github.com/fiveways/fiveways/blob/main/docs/dashboard.md
    """

    enabled: bool = True
    """Whether there is one; without it, `/` tells in plain text what is served where."""
    tables: str = ""
    """The tables of `fiveways pipeline run --out`, whose results it shows; empty shows none.

    If the directory has a `report.html`, those see it under `/report` who are let in without a token.
    """
