"""The corpus: hostile requests to every endpoint and every field, by kind.

- `fields`: each field of the OpenAPI document, with large, wrong, borderline and odd values
- `texts`: bodies that are hardly JSON, headers and URLs; and all of it without a key
- `prompts`, `schemas`, `patterns`: what is small to send and costs much to prepare
- `pages`: the management API, people's pages and the documents
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.hostile.case import Case
from benchmarks.hostile.corpus.fields import field_cases
from benchmarks.hostile.corpus.pages import page_cases
from benchmarks.hostile.corpus.patterns import pattern_cases
from benchmarks.hostile.corpus.prompts import prompt_cases
from benchmarks.hostile.corpus.schemas import schema_cases
from benchmarks.hostile.corpus.texts import key_cases, text_cases


def corpus(document: Mapping[str, Any]) -> tuple[Case, ...]:
    """All cases, for a server with this OpenAPI document."""
    return (
        *text_cases(),
        *key_cases(),
        *prompt_cases(),
        *schema_cases(),
        *pattern_cases(),
        *page_cases(),
        *field_cases(document),
    )
