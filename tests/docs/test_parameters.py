"""The generated documents are up to date, and their tables agree with the code."""

from pathlib import Path

import pytest

from docs.__main__ import DOCUMENTS
from docs.parameters import rows_of
from tests.tables import table
from vinery_serving.core.tasks import Endpoint
from vinery_serving.protocols.common.body_fields import REFUSED
from vinery_serving.protocols.common.reading import parameter_of
from vinery_serving.protocols.openapi import BODIES

DOCS = Path(__file__).resolve().parents[2] / "docs"


@table("endpoint", Endpoint)
def test_each_parameter_is_described_and_has_a_row(endpoint: Endpoint) -> None:
    fields = BODIES[endpoint].model_fields
    for name, field in fields.items():
        assert parameter_of(field) is not None, f"define {name} with parameter(...)"
        assert field.description
    rows = list(rows_of(endpoint))
    names = [row.name for row in rows if "." not in row.name]

    assert sorted(names) == sorted(
        {field.alias or name for name, field in fields.items()} | REFUSED[endpoint].keys()
    )


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == DOCUMENTS[name](), "run `make docs`"
