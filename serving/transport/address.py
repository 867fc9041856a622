"""Where an engine listens: derived from the model's id, so that nobody has to be told."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

# Linux allows 108 bytes for a Unix socket's path, macOS 104, both with the final zero.
_MAX_PATH_BYTES: Final = 103


def engine_socket(run_dir: Path, model_id: int) -> Path:
    """The socket of a model's engine. Its folder exists and is the owner's alone.

    A home with a long name gets a folder under the system's temporary one instead, named
    after the home so that two platforms never meet.
    """
    path = run_dir / f"engine-{model_id}.sock"
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        name = hashlib.sha256(os.fsencode(run_dir)).hexdigest()[:16]
        path = Path(tempfile.gettempdir()) / f"vinery-{os.getuid()}-{name}" / path.name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.parent.stat().st_uid != os.getuid():
        raise PermissionError(f"{path.parent} belongs to another user")
    return path
