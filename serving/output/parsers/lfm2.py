"""The calls of LFM2 and LFM2.5:

    <|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>

Text may stand on both sides.
"""

from __future__ import annotations

from serving.output.parsers.pythonic import ListTags, pythonic_family

TAGS = ListTags("<|tool_call_start|>", "<|tool_call_end|>")
LFM2 = pythonic_family(TAGS)
