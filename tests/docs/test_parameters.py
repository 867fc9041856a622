"""The generated documents are up to date, and their tables agree with the code."""

from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from docs.__main__ import DOCUMENTS
from docs.answers import ANSWERS
from docs.markdown import SYSTEMS
from docs.parameters import rows_of
from docs.parts import PARTS, Part
from tests.tables import table
from vinery_serving.core.dialects import DIALECTS
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.tasks import Endpoint
from vinery_serving.protocols import parse
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.common.parameters import parameter_of
from vinery_serving.protocols.common.refused import REFUSED
from vinery_serving.protocols.openapi.document import BODIES


@table("endpoint", Endpoint)
def test_each_parameter_is_described_and_has_a_row_or_is_in_no_system(
    endpoint: Endpoint,
) -> None:
    fields = BODIES[endpoint].model_fields
    for name, field in fields.items():
        assert parameter_of(field) is not None, f"define {name} with parameter(...)"
        assert field.description
    read = {field.alias or name for name, field in fields.items()}
    refused = {name for name, each in REFUSED[endpoint].items() if each.systems_of(endpoint)}
    rows = rows_of(endpoint)
    names = [row.name for row in rows]

    assert len(names) == len(set(names))
    assert {name for name in names if "." not in name} == read - set(REFUSED[endpoint]) | refused
    assert all(set(row.systems.upper()) <= set(SYSTEMS) for row in rows)


@table("part", PARTS)
@table("tree", DIALECTS)
def test_a_part_is_accepted_or_refused_as_documented(part: Part, tree: str) -> None:
    body = json_bytes(dict(part.fields))
    if part.meaning is not None:
        assert parse(part.endpoint, body, DIALECTS[tree]).request.endpoint is part.endpoint
        return
    with pytest.raises(InvalidRequest):
        parse(part.endpoint, body, DIALECTS[tree])


@table(
    "kind, path, is_present",
    [
        (kind, member.path, member.is_present)
        for kind, members in ANSWERS.items()
        for member in members
    ],
)
def test_an_answer_has_the_members(kind: type[BaseModel], path: str, is_present: bool) -> None:
    assert has(kind, path.split(".")) == is_present


def has(kind: Any, path: list[str]) -> bool:
    """Return whether values of this type, or of its items, have a member of this path."""
    if not path:
        return True
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(path[0])
        return field is not None and has(field.annotation, path[1:])
    return any(has(each, path) for each in get_args(kind))


DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == DOCUMENTS[name](), "run `make docs`"
