"""The answers of the endpoints, as types.

The encoders write answers as bytes and do not use these types. The OpenAPI document shows
them, and tests validate every answer with them.
"""

from __future__ import annotations

from serving.protocols.openapi.answers.base import Error
from serving.protocols.openapi.answers.chat import ChatCompletion, ChatCompletionChunk, Completion
from serving.protocols.openapi.answers.models import (
    Detokenized,
    InputTokens,
    Model,
    ModelList,
    Tokenized,
    TokenizerInfo,
    Version,
)
from serving.protocols.openapi.answers.responses import Response, ResponseEvent

__all__ = [
    "ChatCompletion",
    "ChatCompletionChunk",
    "Completion",
    "Detokenized",
    "Error",
    "InputTokens",
    "Model",
    "ModelList",
    "Response",
    "ResponseEvent",
    "Tokenized",
    "TokenizerInfo",
    "Version",
]
