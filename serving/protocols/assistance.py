"""OVMS's fields for models that check proposed tokens instead of making each by itself."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from serving.core.errors import InvalidRequest
from serving.core.request import SpeculativeDecoding
from serving.protocols.reading import Wire

# More would be rejected before they were needed, and a step must have room for them.
_MAX_TOKENS = 64


class AssistanceFields(Wire):
    """What `SpeculativeDecoding` is read from."""

    num_assistant_tokens: Annotated[int, Field(ge=1, le=_MAX_TOKENS)] | None = None
    assistant_confidence_threshold: Annotated[float, Field(gt=0, lt=1)] | None = None
    max_ngram_size: Annotated[int, Field(ge=1, le=_MAX_TOKENS)] | None = None

    def assistance(self) -> SpeculativeDecoding:
        """Raises `InvalidRequest` for two ways at once to say how far ahead."""
        if self.num_assistant_tokens is not None and (
            self.assistant_confidence_threshold is not None
        ):
            raise InvalidRequest(
                "`num_assistant_tokens` and `assistant_confidence_threshold` exclude each other. "
                "Send one of them.",
                param="assistant_confidence_threshold",
            )
        return SpeculativeDecoding(
            self.num_assistant_tokens, self.assistant_confidence_threshold, self.max_ngram_size
        )
