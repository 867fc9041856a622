"""The table of parameters leaves nothing out, and says nothing that is not so."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import BaseModel

from docs.answers import ANSWERS
from docs.parts import PARTS, Part
from docs.systems import PARAMETERS, SYSTEMS
from serving.core.errors import InvalidRequest
from serving.core.request import DIALECTS, Endpoint
from serving.protocols import parse
from serving.protocols.openapi.document import BODIES
from serving.protocols.openapi.schema import paths
from serving.protocols.refused import REFUSED
from serving.protocols.sse import json_bytes


@pytest.mark.parametrize("endpoint", Endpoint)
def test_no_parameter_of_any_system_is_silently_ignored(endpoint: Endpoint) -> None:
    known = {*paths(BODIES[endpoint]), *REFUSED[endpoint]}

    assert {name for name, systems in PARAMETERS[endpoint].items() if systems} <= known


@pytest.mark.parametrize("endpoint", Endpoint)
def test_everything_that_is_read_or_refused_has_a_row(endpoint: Endpoint) -> None:
    known = {*paths(BODIES[endpoint]), *REFUSED[endpoint]}

    assert known <= set(PARAMETERS[endpoint])


@pytest.mark.parametrize("endpoint", Endpoint)
def test_every_row_names_systems_that_there_are(endpoint: Endpoint) -> None:
    for systems in PARAMETERS[endpoint].values():
        assert set(systems.upper()) <= set(SYSTEMS)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
@pytest.mark.parametrize("tree", DIALECTS)
def test_a_part_is_taken_or_refused_as_its_row_says(part: Part, tree: str) -> None:
    body = json_bytes(dict(part.fields))
    if part.meaning is not None:
        assert parse(part.endpoint, body, DIALECTS[tree]).request.endpoint is part.endpoint
        return
    with pytest.raises(InvalidRequest):
        parse(part.endpoint, body, DIALECTS[tree])


@pytest.mark.parametrize(
    ("kind", "path", "is_told"),
    [
        (kind, member.path, member.is_told)
        for kind, members in ANSWERS.items()
        for member in members
    ],
)
def test_an_answer_has_what_its_row_says(kind: type[BaseModel], path: str, is_told: bool) -> None:
    assert has(kind, path.split(".")) == is_told


def has(kind: Any, path: list[str]) -> bool:
    """Whether values of this type have a member of this path; lists are looked into."""
    if not path:
        return True
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(path[0])
        return field is not None and has(field.annotation, path[1:])
    return any(has(each, path) for each in get_args(kind))
