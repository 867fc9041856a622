"""What the endpoints answer, as types.

Answers are written as bytes, token by token, so these types take no part in it: they tell
clients what to expect, and a test holds every answer against them.
"""

from __future__ import annotations

from serving.protocols.openapi.answers.chat import ChatCompletion, ChatCompletionChunk
from serving.protocols.openapi.answers.completions import Completion
from serving.protocols.openapi.answers.errors import Error
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
