"""Writes the documents that are generated from the code: `python -m docs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from docs.errors import errors_page
from docs.parameters import parameters_page

DOCUMENTS: Mapping[str, Callable[[], str]] = {
    "errors.md": errors_page,
    "parameters.md": parameters_page,
}


def main() -> None:
    """Write all documents into the folder of this file."""
    folder = Path(__file__).parent
    for name, page in DOCUMENTS.items():
        (folder / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
