"""The generated documents are up to date."""

from pathlib import Path

import pytest

from docs.__main__ import DOCUMENTS

FOLDER = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_up_to_date(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")

    assert written == DOCUMENTS[name](), "run `make docs`"
