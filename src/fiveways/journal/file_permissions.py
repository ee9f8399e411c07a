"""Permissions of files: for the owner only, or readable by a group."""

import grp
import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from fiveways.journal.errors import JournalError

_NO_GROUP: Final = -1
_GROUP_READ_MODE: Final = 0o040
_GROUP_DIRECTORY_MODE: Final = 0o2050
"""The group can list the directory; setgid gives new files in it to the group."""


class FilePermissions(NamedTuple):
    """The group that may read, if any."""

    group_id: int = _NO_GROUP

    def make_directory(self, path: Path) -> None:
        """Create a directory with mode 0700, or 2750 with a group.

        An existing directory is only opened to the group.
        """
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
        if self.group_id == _NO_GROUP or (
            status.st_gid == self.group_id and status.st_mode & _GROUP_DIRECTORY_MODE == _GROUP_DIRECTORY_MODE
        ):
            return
        os.chown(path, _NO_GROUP, self.group_id)
        path.chmod(status.st_mode & 0o777 | _GROUP_DIRECTORY_MODE)

    def open(self, path: str, flags: int) -> int:
        """Open a file; a new file has mode 0600, or 0640 with a group. Usable as an `opener`."""
        handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
        if self.group_id != _NO_GROUP:
            os.fchown(handle, _NO_GROUP, self.group_id)
            os.fchmod(handle, 0o600 | _GROUP_READ_MODE)
        return handle

    def apply_to_tree(self, folder: Path) -> None:
        """Set the permissions of a directory and all its content; files of other owners are not changed."""
        file_mode = 0o600 if self.group_id == _NO_GROUP else 0o600 | _GROUP_READ_MODE
        for path in [folder, *folder.rglob("*")]:
            status = path.lstat()
            is_folder = stat.S_ISDIR(status.st_mode)
            expected_mode = (
                0o700 | (_GROUP_DIRECTORY_MODE if self.group_id != _NO_GROUP else 0) if is_folder else file_mode
            )
            if status.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(status.st_mode)):
                continue
            if self.group_id not in {_NO_GROUP, status.st_gid}:
                os.chown(path, _NO_GROUP, self.group_id)
            if stat.S_IMODE(status.st_mode) != expected_mode:
                path.chmod(expected_mode)


OWNER_ONLY: Final = FilePermissions()


def permissions_for_group(group: str) -> FilePermissions:
    """Return the permissions for the name of a group; for the owner only if the name is empty.

    Raises:
        JournalError: the group does not exist.
    """
    if not group:
        return OWNER_ONLY
    try:
        return FilePermissions(grp.getgrnam(group).gr_gid)
    except KeyError:
        raise JournalError(f"there is no group {group!r} on this machine") from None
