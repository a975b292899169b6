"""What was learned on one's own machines, and how an estimate uses it.

A run that was measured, compared or watched with `--calibrate` leaves the terms that its counters determine in one
small file (file.py). `learned` is what an estimate asks for such a term; without a file it costs nothing.

    run          one run and the terms that it showed; terms of a kind are those that may be put together
    spread       from the values of several runs to a value with its interval
    force        which site an estimate uses, what it asked for and what it got
    file         reading and writing the file
"""

from vramwise.site.force import (
    THE_USERS,
    Asked,
    InForce,
    Learned,
    asking,
    chosen_site,
    is_in_force,
    kept_in_force,
    learned,
    site_in_use,
    using,
)

__all__ = [
    "THE_USERS",
    "Asked",
    "InForce",
    "Learned",
    "asking",
    "chosen_site",
    "is_in_force",
    "kept_in_force",
    "learned",
    "site_in_use",
    "using",
]
