"""Every constraint holds on every endpoint of both trees."""

from __future__ import annotations

import httpx

from tests.tables import table

from .conftest import TREES
from .constraints import CONSTRAINTS, ENDPOINTS, FORMATS, answered, fields_of


@table("tree", TREES)
@table("endpoint", ENDPOINTS)
@table("name", [*CONSTRAINTS, *FORMATS])
def test_every_constraint_holds_on_every_endpoint(
    raw: httpx.Client, tree: str, endpoint: str, name: str
) -> None:
    text = answered(raw, tree, endpoint, **fields_of(name, endpoint))

    assert text.strip('"') in ("yes", "no")
