"""Messages for errors of the operating system: which file, why, and what to do."""

from __future__ import annotations

import errno
from typing import Final

_ADVICE: Final = {
    errno.ENOENT: "check the name",
    errno.EACCES: "make it readable and writable for the user that runs this",
    errno.EPERM: "make it readable and writable for the user that runs this",
    errno.EROFS: "make it readable and writable for the user that runs this",
    errno.EEXIST: "move it away, or choose another name",
    errno.ENOTDIR: "a directory belongs there: put it back, or choose another path",
    errno.EISDIR: "a file belongs there: move the directory away, or choose another path",
    errno.ELOOP: "put the file or directory itself in the place of the symbolic links",
    errno.ENXIO: "put the file that belongs there in its place",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ENOSPC: "free some space, then try again",
    errno.EDQUOT: "free some space, then try again",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "raise the limit on open files of the whole system",
    errno.ENOMEM: "raise the limit on memory (ulimit -v), or end other programs",
    errno.EIO: "check the disk, and restore the file from a backup",
}


def advice_for(number: int) -> str:
    """Return what to do about an errno; empty if there is no advice."""
    return _ADVICE.get(number, "")


def reason_of(error: OSError) -> str:
    """Return the text of a system error, without its number and path."""
    return error.strerror or str(error) or type(error).__name__


def system_error_text(error: OSError) -> str:
    """Return a message that says which file could not be used, why, and what to do."""
    name = error.filename if error.filename2 is None else error.filename2
    text = reason_of(error) if name is None else f"cannot use {name}: {reason_of(error)}"
    advice = advice_for(error.errno or 0)
    return f"{text}; {advice}" if advice else text
