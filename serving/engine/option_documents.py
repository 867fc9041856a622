"""Every engine option with its default and meaning, for the command line and the admin.

Read from `EngineOptions` itself, so that neither can tell of an option that is gone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import get_type_hints

import msgspec

from serving.engine.config import EngineOptions


@dataclass(frozen=True, slots=True)
class OptionDocument:
    """One engine option, as administrators read of it."""

    name: str
    default: str  # as JSON
    meaning: str


def option_documents() -> list[OptionDocument]:
    """All options, in the order of their declaration."""
    hints = get_type_hints(EngineOptions, include_extras=True)
    return [
        OptionDocument(name, json.dumps(default), hints[name].__metadata__[0].description)
        for name, default in msgspec.structs.asdict(EngineOptions()).items()
    ]
