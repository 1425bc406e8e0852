"""Files are written whole or not at all: a crash, a full disk or Ctrl-C leaves the old one as it was."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader finds the old one or the new one, and never a part."""
    path = Path(os.path.realpath(path))     # through a link, to what it names
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "it may not be written to", str(path))
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    except OSError as error:
        raise _about(path, error) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())         # on the disk before it gets the name, should the power fail
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError):
            raise _about(path, error) from None
        raise


def _about(path: Path, error: OSError) -> OSError:
    """The same failure, told of the file that was asked for, and not of the temporary one."""
    return type(error)(error.errno, error.strerror, str(path))
