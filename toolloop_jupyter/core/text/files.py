"""Write a text to a temporary file and rename that file. So a full disk or an interrupt leaves the old file as it was."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path


def write_whole(path: str | Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all. Half of a surrogate pair is written as its escape.

    Raises OSError with the reason and this path, and leaves no temporary file behind.
    """
    data = text.encode("utf-8", "backslashreplace")
    target = Path(os.path.realpath(path))  # a link stays: the file that it points to is replaced
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if target.is_fifo():  # writing would wait for a reader, perhaps for ever
            raise OSError(errno.EINVAL, "It is a pipe, not a file")
        if target.exists() and not target.is_file():  # a device takes the text itself; a folder refuses it
            target.write_bytes(data)
            return
        aside.write_bytes(data)
        if target.exists():
            shutil.copymode(target, aside)
        aside.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
