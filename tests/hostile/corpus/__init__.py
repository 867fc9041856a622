"""The corpus: hostile requests to every endpoint and every field, by kind.

- `fields`: each field of the OpenAPI document, with large, wrong, borderline and odd values
- `texts`: bodies that are hardly JSON, headers and URLs
- `prompts`, `schemas`, `patterns`: what is small to send and costs much to prepare
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.hostile.case import Case
from tests.hostile.corpus.fields import field_cases
from tests.hostile.corpus.patterns import pattern_cases
from tests.hostile.corpus.prompts import prompt_cases
from tests.hostile.corpus.schemas import schema_cases
from tests.hostile.corpus.texts import text_cases


def corpus(document: Mapping[str, Any]) -> tuple[Case, ...]:
    """All cases, for a server with this OpenAPI document."""
    return (
        *text_cases(),
        *prompt_cases(),
        *schema_cases(),
        *pattern_cases(),
        *field_cases(document),
    )
