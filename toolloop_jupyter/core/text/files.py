"""Writes a text to a temporary file and then renames this file. If the disk is full or the write is interrupted, the old file
stays as it was.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from pathlib import Path


def write_whole(path: str | Path, text: str) -> None:
    """Write `text` to the file `path`. If this fails, the old file stays as it was, and no temporary file is left.

    Half of a surrogate pair is written as an escape sequence. Raises OSError with the reason and `path`.
    """
    data = text.encode("utf-8", "backslashreplace")
    target = Path(os.path.realpath(path))  # a link stays: the file that it points to is replaced
    aside = target.with_name(f".{secrets.token_hex(8)}.part")  # each writer has its own temporary file
    try:
        if target.is_fifo():  # writing would wait for a reader, perhaps for ever
            raise OSError(errno.EINVAL, "It is a pipe, not a file")
        if target.exists() and not target.is_file():  # a device takes the text itself; a folder refuses it
            target.write_bytes(data)
            return
        if target.exists() and not os.access(target, os.W_OK):  # renaming would replace the file
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        aside.write_bytes(data)
        if target.exists():
            shutil.copymode(target, aside)
        aside.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
