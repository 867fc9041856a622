"""The description of a request parameter, beside the type of its field.

The OpenAPI document and `docs/parameters.md` read it from there.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from vinery_serving.core import field_limits
from vinery_serving.protocols.common.limited import Limited
from vinery_serving.protocols.common.reading import invalid

# Types of several parameters. OpenAI's description and OVMS's source set the limits.
ModelName = Annotated[str, Limited(field_limits.MODEL_NAME)]
MODEL: Final = (
    "A served model or an alias. If it is absent, the alias `default` answers, or else the only "
    "model for the endpoint that is loaded."
)
MAX_TOKEN_ID: Final = 2**31 - 1  # engines take int32
TokenId = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]
TokenIds = Annotated[list[TokenId], Field(fail_fast=True)]
PromptIds = Annotated[TokenIds, Limited(field_limits.PROMPT_IDS)]
# A limit of output tokens. LM Studio's clients and those of llama.cpp send it for no limit.
NO_LIMIT: Final = -1


def _not_zero(value: int) -> int:
    if value == 0:
        raise invalid("must be at least 1, or -1 for no limit")
    return value


MaxTokens = Annotated[
    int,
    Field(ge=NO_LIMIT, le=2**32 - 1, json_schema_extra={"not": {"const": 0}}),
    AfterValidator(_not_zero),
]
TopLogprobs = Annotated[int, Field(ge=0, le=20)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORT = (
    "How much to reason. The template gets it in its own words. For a template without efforts "
    "it is a budget of reasoning tokens."
)


# The systems whose documents have a parameter, for `parameter(..., of=...)`. OVMS is OpenVINO Model
# Server. The sources are the documents of 2026: OpenVINO Model Server 2026.4, OpenAI's API
# description, vLLM 0.33, FastDeploy 2.
EVERY_SYSTEM: Final = "OVMS, OpenAI, vLLM, FastDeploy"


@dataclass(frozen=True, slots=True)
class Parameter:
    """The facts about a parameter beside its type and its description."""

    of: str
    changes_nothing: bool


def parameter(
    description: str,
    *,
    of: str = "",
    changes_nothing: bool = False,
    alias: str | None = None,
    default: Any = None,
    is_required: bool = False,
) -> Any:
    """Return the pydantic field of a request parameter.

    `of` names the systems that document it. Messages are Anthropic's: their fields name none.
    `changes_nothing` marks a parameter that has no effect on the generated text.
    """
    if is_required:
        default = PydanticUndefined
    field: FieldInfo = Field(default=default, alias=alias, description=description)
    field.metadata.append(Parameter(of, changes_nothing))
    return field


def parameter_of(field: FieldInfo) -> Parameter | None:
    """Return the facts that `parameter` gave to a field. None for other fields."""
    return next((each for each in field.metadata if isinstance(each, Parameter)), None)
