"""Check that no other user can change the folders of drumline, since it runs commands and interpreters in them.

The rules are those of sshd for `authorized_keys`: a folder, and each folder and link in its path, must belong to this
user or to root, and no other user may be able to write it. A parent folder with the sticky bit, such as /tmp, is
accepted: other users can create entries there, but not replace those of this user. Root accepts no folder of another
user, since it would run that user's commands.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterable

from drumline.errors import EngineError
from drumline.words import printable

_MOST_LINKS = 40  # the limit of the kernel
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def require_trusted(path: str, variable: str, files: Iterable[str] = ()) -> None:
    """Raise EngineError if a user other than this one and root can change this folder, or these files in it.

    `variable` is the environment variable with which the user can set another folder. A folder that does not exist is
    not checked: drumline creates it with mode 0700.
    """
    reason = _folder_problem(path)
    for name in files:
        reason = reason or _file_problem(f"{path}/{name}")
    if reason:
        raise EngineError(
            f"the folder {printable(path)} is not used, since others could have changed it: {printable(reason)}",
            hint=f"set {variable} to a folder that only you can write, or `chmod go-w` this one if you trust its files",
        )


def _folder_problem(path: str) -> str:
    """Follow a path one entry at a time, also through links; return why it cannot be trusted, or an empty text."""
    names = _names(path)
    at, links = "", 0
    system = os.lstat("/").st_uid  # root, except in a user namespace without root
    while names:
        name = names.pop()
        if name == "..":
            at = at.rpartition("/")[0]
            continue
        entry = f"{at}/{name}"
        try:
            found = os.lstat(entry)
            target = os.readlink(entry) if stat.S_ISLNK(found.st_mode) else None  # noqa: PTH115
        except OSError:
            return ""
        if problem := _problem(entry, found, is_parent=bool(names) or target is not None, system=system):
            return problem
        if target is None:
            at = entry
            continue
        links += 1
        if links > _MOST_LINKS:
            return ""
        at = "" if target.startswith("/") else at
        names += _names(target)
    return ""


def _names(path: str) -> list[str]:
    """Return the parts of a path, the last part first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _file_problem(path: str) -> str:
    try:
        found = os.lstat(path)
    except OSError:
        return ""
    return f"{path} is a symbolic link" if stat.S_ISLNK(found.st_mode) else _problem(path, found, is_parent=False)


def _problem(path: str, found: os.stat_result, *, is_parent: bool, system: int = 0) -> str:
    """Return why an entry of a path cannot be trusted, or an empty text."""
    if found.st_uid not in (0, os.geteuid()) and not (is_parent and found.st_uid == system):
        return f"{path} belongs to {_user_name(found.st_uid)}"
    if stat.S_ISLNK(found.st_mode) or not found.st_mode & _OTHERS_WRITE:
        return ""
    if is_parent and found.st_mode & stat.S_ISVTX:
        return ""
    if not found.st_mode & stat.S_IWOTH and _is_own_group(path, found.st_gid):
        return ""
    return f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"


def _is_own_group(path: str, gid: int) -> bool:
    """Return whether a group is the private group of this user: it has the user's name and no other member.

    False for a file with an access control list: then the group bits are the mask of the list, not the rights of the
    group.
    """
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    is_own = gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    return is_own and not _has_list(path)


def _has_list(path: str) -> bool:
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except (OSError, AttributeError):  # the file system or the operating system has no extended attributes
        return False


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
