"""Permissions of files: for their owner alone, or to be read by a group as well."""

import grp
import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from fiveways.journal.errors import JournalError

_NOBODY: Final = -1
_GROUP_READS: Final = 0o040
_GROUP_ENTERS: Final = 0o2050
"""The group lists the directory, and what is made in it belongs to the group."""


class Access(NamedTuple):
    """The group that may read, if any."""

    group: int = _NOBODY

    def make_directory(self, path: Path) -> None:
        """Make a directory with mode 0700, or 2750 with a group. One that is there is opened to the group only."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = path.stat()
        if self.group == _NOBODY or (about.st_gid == self.group and about.st_mode & _GROUP_ENTERS == _GROUP_ENTERS):
            return
        os.chown(path, _NOBODY, self.group)
        path.chmod(about.st_mode & 0o777 | _GROUP_ENTERS)

    def open(self, path: str, flags: int) -> int:
        """Open a file; one that is made has mode 0600, or 0640 with a group. May be an `opener`."""
        handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
        if self.group != _NOBODY:
            os.fchown(handle, _NOBODY, self.group)
            os.fchmod(handle, 0o600 | _GROUP_READS)
        return handle

    def give(self, folder: Path) -> None:
        """Let a directory and all in it have the permissions of what is made here; other owners' files stay."""
        mode = 0o600 if self.group == _NOBODY else 0o600 | _GROUP_READS
        for each in [folder, *folder.rglob("*")]:
            about = each.lstat()
            is_folder = stat.S_ISDIR(about.st_mode)
            wanted = 0o700 | (_GROUP_ENTERS if self.group != _NOBODY else 0) if is_folder else mode
            if about.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(about.st_mode)):
                continue
            if self.group not in {_NOBODY, about.st_gid}:
                os.chown(each, _NOBODY, self.group)
            if stat.S_IMODE(about.st_mode) != wanted:
                each.chmod(wanted)


PRIVATE: Final = Access()


def access_of(group: str) -> Access:
    """Return the permissions for a group's name, or for the owner alone if it is empty; JournalError if unknown."""
    if not group:
        return PRIVATE
    try:
        return Access(grp.getgrnam(group).gr_gid)
    except KeyError:
        raise JournalError(f"there is no group {group!r} on this machine") from None
