"""Permissions of files: for their owner alone, or to be read by a group as well."""

import grp
import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from fiveways.journal.errors import JournalError

_NO_GROUP: Final = -1
_GROUP_READ_MODE: Final = 0o040
_GROUP_DIRECTORY_MODE: Final = 0o2050
"""The group lists the directory, and what is made in it belongs to the group."""


class FilePermissions(NamedTuple):
    """The group that may read, if any."""

    group_id: int = _NO_GROUP

    def make_directory(self, path: Path) -> None:
        """Make a directory with mode 0700, or 2750 with a group. One that is there is opened to the group only."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = path.stat()
        if self.group_id == _NO_GROUP or (
            about.st_gid == self.group_id and about.st_mode & _GROUP_DIRECTORY_MODE == _GROUP_DIRECTORY_MODE
        ):
            return
        os.chown(path, _NO_GROUP, self.group_id)
        path.chmod(about.st_mode & 0o777 | _GROUP_DIRECTORY_MODE)

    def open(self, path: str, flags: int) -> int:
        """Open a file; one that is made has mode 0600, or 0640 with a group. May be an `opener`."""
        handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
        if self.group_id != _NO_GROUP:
            os.fchown(handle, _NO_GROUP, self.group_id)
            os.fchmod(handle, 0o600 | _GROUP_READ_MODE)
        return handle

    def apply_to_tree(self, folder: Path) -> None:
        """Let a directory and all in it have the permissions of what is made here; other owners' files stay."""
        mode = 0o600 if self.group_id == _NO_GROUP else 0o600 | _GROUP_READ_MODE
        for each in [folder, *folder.rglob("*")]:
            about = each.lstat()
            is_folder = stat.S_ISDIR(about.st_mode)
            wanted = 0o700 | (_GROUP_DIRECTORY_MODE if self.group_id != _NO_GROUP else 0) if is_folder else mode
            if about.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(about.st_mode)):
                continue
            if self.group_id not in {_NO_GROUP, about.st_gid}:
                os.chown(each, _NO_GROUP, self.group_id)
            if stat.S_IMODE(about.st_mode) != wanted:
                each.chmod(wanted)


OWNER_ONLY: Final = FilePermissions()


def permissions_for_group(group: str) -> FilePermissions:
    """Return the permissions for a group's name, or for the owner alone if it is empty; JournalError if unknown."""
    if not group:
        return OWNER_ONLY
    try:
        return FilePermissions(grp.getgrnam(group).gr_gid)
    except KeyError:
        raise JournalError(f"there is no group {group!r} on this machine") from None
