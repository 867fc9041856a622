"""`POST responses/input_tokens`: how long the prompt of a request would be."""

from __future__ import annotations

from serving.core.errors import MissingParameter
from serving.core.request import Dialect, Endpoint, GenerationRequest
from serving.protocols.refused import read_body
from serving.protocols.responses.body import ResponsesBody
from serving.protocols.sse import json_bytes


def parse_count(body: bytes, dialect: Dialect) -> GenerationRequest:
    """The request whose prompt is to be counted: that of a response, but instructions are
    enough. Raises `InvalidRequest`."""
    wire = read_body(Endpoint.RESPONSES, ResponsesBody, body)
    if wire.input is None and not wire.instructions:
        raise MissingParameter("`input` is required.", param="input")
    return wire.request(Endpoint.RESPONSES, wire.conversation(), dialect)


def count_body(num_tokens: int) -> bytes:
    """The answer."""
    return json_bytes({"object": "response.input_tokens", "input_tokens": num_tokens})
