"""Files that appear whole or not at all, for this user alone."""

import os
import tempfile
from pathlib import Path


def write_private(path: Path, content: str | bytes, *, replace: bool = True) -> bool:
    """Write a file with mode 0600 atomically. Returns False without a change if the file exists and
    `replace` is False. Safe if several processes do it at once. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
        else:
            path.hardlink_to(draft)  # unlike a rename, a link fails if the name exists
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True
