"""The calls of Phi-4-mini (see the parser)."""

from __future__ import annotations

from serving.constraints.families.base import Calls
from serving.constraints.tags import json_call_tag
from serving.output.parsers.phi4 import OPEN

PHI4_CALLS = Calls(json_call_tag, trigger=OPEN.text, begin=OPEN.text, separator=", ", end="]")
