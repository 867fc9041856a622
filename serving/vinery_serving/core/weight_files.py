"""How large the weights of a model folder are."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_ENDINGS: Final = (".bin", ".gguf")


def weights_bytes_of(folder: Path) -> int:
    """Return the size of all weights files; 0 for a folder that cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.name.endswith(_ENDINGS))
    return 0
