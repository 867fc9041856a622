"""Where the files are that belong to the code: in a clone of the repository, or in a wheel.

A wheel has the folders `templates` and `models` inside the package.
"""

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parents[1]


def _repository() -> Path | None:
    """The clone that this code runs from; None for an installed package."""
    root = _PACKAGE.parents[1]
    is_clone = root / "platform" / _PACKAGE.name == _PACKAGE and (root / "pyproject.toml").is_file()
    return root if is_clone else None


REPOSITORY: Final = _repository()
TEMPLATES: Final = (REPOSITORY or _PACKAGE) / "templates"
MODELS: Final = (REPOSITORY or _PACKAGE) / "models"
