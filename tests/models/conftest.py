"""Makes the training package importable; it lives beside the models, outside the platform."""

import json
import sys
from pathlib import Path

import jinja2
import pytest

MODELS = Path(__file__).resolve().parents[2] / "models"

sys.path.insert(0, str(MODELS))


@pytest.fixture(params=[True, False])
def environment(request: pytest.FixtureRequest) -> jinja2.Environment:
    """That of a server, which trims blocks or does not."""
    trims: bool = request.param
    environment = jinja2.Environment(
        autoescape=False, trim_blocks=trims, lstrip_blocks=trims, keep_trailing_newline=trims
    )
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment
