"""The calls of Granite 3 (see the parser)."""

from __future__ import annotations

from serving.constraints.families.base import Calls
from serving.constraints.tags import json_call_tag
from serving.output.parsers.granite import OPEN

GRANITE_CALLS = Calls(
    json_call_tag, trigger=OPEN.text, begin=f"{OPEN.text}[", separator=", ", end="]"
)
