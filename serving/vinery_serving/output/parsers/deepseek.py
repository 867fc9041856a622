"""Tool calls of DeepSeek. V3 and R1 write the arguments in a fence:

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
    ```json
    {"city": "Paris"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

V3.1 and later write neither the kind nor the fence nor line breaks (added here):

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>
    {"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

Both are read, whichever is expected. The outer tags may be missing.
"""

import re

from vinery_serving.output.lexer import Tag
from vinery_serving.output.parsers.json_calls import Section

CALLS_BEGIN, CALLS_END = Tag("<｜tool▁calls▁begin｜>"), Tag("<｜tool▁calls▁end｜>")
CALL_BEGIN, CALL_END = Tag("<｜tool▁call▁begin｜>"), Tag("<｜tool▁call▁end｜>")
SEPARATOR = "<｜tool▁sep｜>"
_HEAD = re.compile(
    rf"\s*(?:\w+{SEPARATOR}\s*(?=[\w.-]))?(?P<name>[\w.-]+)"
    rf"\s*(?P<mark>{SEPARATOR}\s*)?(?:```(?:json)?\s*)?",
    re.ASCII,
)
_FENCE = "```"

DEEPSEEK = Section(CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, _HEAD, _FENCE).family(SEPARATOR)
