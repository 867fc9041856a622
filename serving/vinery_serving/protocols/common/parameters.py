"""The description of a request parameter, beside the type of its field.

The OpenAPI document, `docs/parameters.md`, `docs/errors.md` and the tests of wrong values all
read it from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from vinery_serving.core import field_limits
from vinery_serving.core.tasks import GENERATION_ENDPOINTS, POOLING_ENDPOINTS, Endpoint
from vinery_serving.protocols.common.limited import Limited
from vinery_serving.protocols.common.reading import invalid

# Types of several parameters. OpenAI's description and OVMS's source set the limits.
ModelName = Annotated[str, Limited(field_limits.MODEL_NAME)]
MODEL: Final = (
    "A served model or an alias. If it is absent, the alias `default` answers, or else the only "
    "model for the endpoint that is loaded."
)
TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]  # engines take int32
TokenIds = Annotated[list[TokenId], Field(fail_fast=True)]
PromptIds = Annotated[TokenIds, Limited(field_limits.PROMPT_IDS)]
# A limit of output tokens. LM Studio's clients and those of llama.cpp send it for no limit.
NO_LIMIT: Final = -1
_NO_TOKENS = "must be at least 1, or -1 for no limit"


def _not_zero(value: int) -> int:
    if value == 0:
        raise invalid(_NO_TOKENS)
    return value


MaxTokens = Annotated[
    int,
    Field(ge=NO_LIMIT, le=2**32 - 1, json_schema_extra={"not": {"const": 0}}),
    AfterValidator(_not_zero),
]
WRONG_LIMITS: Final = ((0, _NO_TOKENS),)
TopLogprobs = Annotated[int, Field(ge=0, le=20)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORT = (
    "How much to reason. The template gets it in its own words. For a template without efforts "
    "it is a budget of reasoning tokens."
)
EFFORTS = "must be one of 'none', 'minimal', 'low', 'medium', 'high', 'xhigh' or 'max'"


@dataclass(frozen=True, slots=True)
class Parameter:
    """The facts about a parameter beside its type and its description."""

    systems: str
    wrong: Sequence[tuple[Any, str]] = ()
    changes_nothing: bool = False

    def systems_of(self, endpoint: Endpoint) -> str:
        """Return the letters of the systems that document the parameter at `endpoint`."""
        is_pooling = endpoint in POOLING_ENDPOINTS
        at = (POOLING_ENDPOINTS if is_pooling else GENERATION_ENDPOINTS).index(endpoint)
        columns = self.systems.split()
        if len(columns) > 1:
            return "".join(columns[at : at + 1]).replace("-", "")
        return "".join(columns).replace("-", "")


def parameter(
    description: str,
    systems: str = "",
    *,
    wrong: Sequence[tuple[Any, str]] = (),
    changes_nothing: bool = False,
    alias: str | None = None,
    default: Any = None,
    is_required: bool = False,
) -> Any:
    """Return the pydantic field of a request parameter.

    `systems` names the systems that document the parameter: O for OpenVINO Model Server, A for
    OpenAI, V for vLLM, F for FastDeploy, in lower case if the system ignores it or implements
    a part of it. It has one word for a field of one endpoint, otherwise three words, for
    chats, completions and responses, or for embeddings, rerank and score; "-" is an empty word.
    Messages are Anthropic's: their fields have no words. The sources are the documents of
    2026: OpenVINO Model Server 2026.4, OpenAI's API description, vLLM 0.33, FastDeploy 2.

    `wrong` holds values that the server refuses with the code `invalid_value`, and the part of
    the message after the parameter's name. `changes_nothing` marks a parameter that has no
    effect on the generated text.
    """
    if is_required:
        default = PydanticUndefined
    field: FieldInfo = Field(default=default, alias=alias, description=description)
    field.metadata.append(Parameter(systems, wrong, changes_nothing))
    return field


def parameter_of(field: FieldInfo) -> Parameter | None:
    """Return the description that `parameter` gave to a field. None for other fields."""
    return next((each for each in field.metadata if isinstance(each, Parameter)), None)
