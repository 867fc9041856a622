"""The types of fields that the endpoints share, with their limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from serving.protocols.reading import invalid

# The limits are those of OpenAI's description, or of OVMS for the fields it adds.
ModelName = Annotated[str, Field(max_length=255)]
Temperature = Annotated[float, Field(ge=0, le=2)]
TopP = Annotated[float, Field(ge=0, le=1)]
TopK = Annotated[int, Field(ge=-1, le=2**31 - 1)]
MinP = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
# The engine's numbers are short, and take much smaller ones for 0, which it refuses.
RepetitionPenalty = Annotated[float, Field(ge=0.01, le=1000)]
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
NumSamples = Annotated[int, Field(ge=1, le=128)]
MaxTokens = Annotated[int, Field(ge=1, le=2**32 - 1)]
MinTokens = Annotated[int, Field(ge=0, le=2**32 - 1)]
# A budget of 0 ends the thought at once; below that vLLM has "no budget".
ReasoningTokens = Annotated[int, Field(ge=-1, le=2**32 - 1)]
# Engines take token ids as int32.
TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]
TokenIds = Annotated[list[TokenId], Field(fail_fast=True)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

# What a template's variables may not be called: the renderer sets these itself.
_RESERVED_KWARGS = frozenset(
    (
        "add_generation_prompt",
        "bos_token",
        "chat_template",
        "cls_token",
        "continue_final_message",
        "conversation",
        "eos_token",
        "mask_token",
        "max_length",
        "messages",
        "pad_token",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "sep_token",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
        "unk_token",
    )
)


def _one_or_many(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return value
    raise invalid("must be a string or an array of strings")


def _without_reserved_names(value: object) -> object:
    for name in value if isinstance(value, dict) else ():
        if name in _RESERVED_KWARGS:
            raise invalid(f"must not set `{name}`: the server sets it itself")
    return value


def _not_zero(value: int) -> int:
    if value == 0:
        raise invalid("must be at least 1, or -1 for as many tokens as the model has room for")
    return value


TruncateTo = Annotated[
    int,
    Field(ge=-1, le=2**31 - 1, json_schema_extra={"not": {"const": 0}}),
    AfterValidator(_not_zero),
]
_StopText = Annotated[str, Field(min_length=1)]
Stop = Annotated[
    list[_StopText],
    Field(fail_fast=True),
    BeforeValidator(_one_or_many, json_schema_input_type=_StopText | list[_StopText]),
]
TemplateKwargs = Annotated[
    dict[str, Any],
    BeforeValidator(_without_reserved_names, json_schema_input_type=dict[str, Any]),
]
