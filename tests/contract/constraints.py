"""Every name of structured output, and every form of a format, for the answer yes or no."""

from __future__ import annotations

import json
from typing import Any

import httpx

from .tiny_chat import MODEL, text_of

YES_OR_NO = {"enum": ["yes", "no"]}
TAG = {"type": "structural_tag", "format": {"type": "const_string", "value": "yes"}}
CONSTRAINTS: dict[str, dict[str, Any]] = {
    "guided_json": {"guided_json": YES_OR_NO},
    "guided_json as text": {"guided_json": json.dumps(YES_OR_NO)},
    "guided_regex": {"guided_regex": "^(?:yes|no)$"},
    "guided_choice": {"guided_choice": ["yes", "no"]},
    "guided_grammar": {"guided_grammar": 'root ::= "yes" | "no"'},
    "structural_tag": {"structural_tag": json.dumps(TAG)},
    **{
        f"structured_outputs.{name}": {"structured_outputs": {name: value}}
        for name, value in {
            "json": YES_OR_NO,
            "regex": "yes|no",
            "choice": ["yes", "no"],
            "grammar": 'root ::= "yes" | "no"',
            "structural_tag": TAG,
        }.items()
    },
}
FORMATS: dict[str, dict[str, Any]] = {
    "json_schema": {"type": "json_schema", "name": "n", "schema": YES_OR_NO, "strict": True},
    "structural_tag": TAG,
    "a bare string": {"type": "const_string", "value": "yes"},
    "a bare regex": {"type": "regex", "pattern": "yes|no"},
    "a bare choice": {
        "type": "or",
        "elements": [
            {"type": "const_string", "value": "yes"},
            {"type": "grammar", "grammar": 'root ::= "n" "o"'},
        ],
    },
    "a bare sequence": {
        "type": "sequence",
        "elements": [{"type": "const_string", "value": "y"}, {"type": "regex", "pattern": "es"}],
    },
    "a bare tag": {
        "type": "tag",
        "begin": "",
        "content": {"type": "json_schema", "json_schema": YES_OR_NO},
        "end": "",
    },
}
QUESTION = "Tell me about Alice as JSON."
ENDPOINTS: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 300},
    "completions": {"prompt": QUESTION, "max_tokens": 300},
    "responses": {"input": QUESTION, "max_output_tokens": 300},
}


def fields_of(name: str, endpoint: str) -> dict[str, Any]:
    """The fields of one of the constraints or formats."""
    if name in CONSTRAINTS:
        return CONSTRAINTS[name]
    if endpoint == "responses":
        return {"text": {"format": FORMATS[name]}}
    wanted = FORMATS[name]
    if name == "json_schema":
        wanted = {"type": "json_schema", "json_schema": wanted}
    return {"response_format": wanted}


def answered(raw: httpx.Client, tree: str, endpoint: str, **fields: Any) -> str:
    """Return the text of a complete answer."""
    body = {"model": MODEL, **ENDPOINTS[endpoint], **fields}
    reply = raw.post(f"/{tree}/{endpoint}", json=body)
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    if endpoint == "responses":
        assert answer["status"] == "completed"
    else:
        [choice] = answer["choices"]
        assert choice["finish_reason"] == "stop"
    return text_of(answer)
