"""The body of a completion request."""

from typing import Annotated

from pydantic import Field, PlainValidator

from vinery_serving.core import field_limits
from vinery_serving.core.errors import MissingParameter
from vinery_serving.core.request import RawPrompts
from vinery_serving.protocols.common.formats import RESPONSE_FORMAT, ResponseFormat
from vinery_serving.protocols.common.generation import GenerationBody
from vinery_serving.protocols.common.limited import Text
from vinery_serving.protocols.common.metadata import ArrivalFields
from vinery_serving.protocols.common.parameters import (
    EVERY_SYSTEM,
    NO_LIMIT,
    TokenId,
    TopLogprobs,
    parameter,
)
from vinery_serving.protocols.common.prompting import (
    Ids,
    ManyIds,
    ManyTexts,
    Prompt,
    read_prompts,
)
from vinery_serving.protocols.common.reading import invalid, refusal


def _read_token_ids(value: object) -> tuple[Prompt, ...]:
    """Read one or more prompts. FastDeploy's clients send [] for none."""
    if value == []:
        return ()
    prompts = read_prompts(value)
    if any(isinstance(prompt, str) for prompt in prompts):
        raise invalid("must be one or more arrays of token ids")
    return prompts


Prompts = Annotated[
    tuple[Prompt, ...],
    PlainValidator(read_prompts, json_schema_input_type=Text | ManyTexts | Ids | ManyIds),
]
TokenIdPrompts = Annotated[
    tuple[Prompt, ...],
    PlainValidator(_read_token_ids, json_schema_input_type=list[TokenId] | ManyIds),
]


class CompletionsBody(ArrivalFields, GenerationBody):
    """The parameters of completions."""

    prompt: Prompts | None = parameter(
        "A text, several texts, token ids, or several lists of token ids.",
        of=EVERY_SYSTEM,
    )
    response_format: ResponseFormat | None = parameter(RESPONSE_FORMAT, of="vLLM, FastDeploy")
    prompt_token_ids: TokenIdPrompts | None = parameter(
        "One or more lists of token ids, which replace `prompt`.",
        of="FastDeploy",
    )
    suffix: Text | None = parameter(
        "The text after the answer, for models with tokens to fill in the middle; refused for "
        "other models.",
        of="OpenAI, vLLM",
    )
    parse_output: bool | None = parameter(
        "Whether the answer has `reasoning_content` and `tool_calls` apart from its text, as in "
        "FastDeploy; not with `suffix` or a format of the answer. Calls that have no tag of their "
        "own stay text. Default: that of the model's options, else false.",
    )
    echo: bool | None = parameter("The answer begins with its prompt.", of=EVERY_SYSTEM)
    logprobs: TopLogprobs | None = parameter(
        "The number of alternatives for each token of the answer, from 0 to 20, from the "
        "model's own distribution; also in streams.",
        of=EVERY_SYSTEM,
    )
    # Clients that only want to score the prompt send 0.
    max_tokens: Annotated[int, Field(ge=NO_LIMIT, le=2**32 - 1)] | None = parameter(
        "The limit of output tokens; -1 is no limit but those of the model. Default: 16 on /v1, "
        "none on /v3. 0 needs `echo` or `prompt_logprobs`.",
        of=EVERY_SYSTEM,
    )

    @property
    def num_top_logprobs(self) -> int | None:
        return self.logprobs

    def prompts(self) -> RawPrompts:
        """Return the prompts. Raises `InvalidRequest` for a missing prompt, and for too many
        answers."""
        prompts = self.prompt_token_ids or self.prompt
        if prompts is None:
            raise MissingParameter("`prompt` is required.", param="prompt")
        # The server keeps state for each answer. Evaluation tools ask for far fewer.
        limit = field_limits.ANSWERS
        if len(prompts) * (self.n or 1) > limit.value:
            raise refusal("prompt", f"asks for more than {limit.value} answers: prompts times `n`")
        return RawPrompts(prompts, echo=bool(self.echo), suffix=self.suffix or None)

    def refuse_contradictions(self) -> None:
        super().refuse_contradictions()
        if self.max_tokens == 0 and not self.echo and self.prompt_logprobs is None:
            raise refusal("max_tokens", "must be at least 1 unless `echo` is true")
        if self.parse_output and (self.suffix or self.constraint(self.response_format)):
            raise refusal("parse_output", "cannot go with `suffix` or a format of the answer")
