"""The parameters that end an answer: token limits, stop strings, stop tokens, repetition."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from vinery_serving.core import field_limits
from vinery_serving.core.dialects import V3, Dialect
from vinery_serving.core.field_limits import FieldLimit
from vinery_serving.core.request import Repetition, Stopping
from vinery_serving.protocols.common import parameters
from vinery_serving.protocols.common.reading import Wire, invalid, refusal

_STOP_CHARS = parameters.Limited(field_limits.STOP_CHARS)


def _one_or_many(value: object) -> object:
    """An empty text is no stop string: forms of tools without code send it."""
    if isinstance(value, str):
        return [_STOP_CHARS.check(value)] if value else []
    if isinstance(value, list):
        return value
    raise invalid("must be a string or an array of strings")


_StopText = Annotated[str, Field(min_length=1), _STOP_CHARS]
_OneStop = Annotated[str, _STOP_CHARS]
# /v1 has fewer.
Stop = Annotated[
    list[_StopText],
    Field(fail_fast=True),
    BeforeValidator(_one_or_many, json_schema_input_type=_OneStop | list[_StopText]),
    parameters.Limited(field_limits.STOPS_V3),
]
StopIds = Annotated[parameters.TokenIds, parameters.Limited(field_limits.STOP_IDS)]
# 0 ends the reasoning at once. vLLM uses negative values for "no budget".
ReasoningTokens = Annotated[int, Field(ge=-1, le=2**32 - 1)]
PatternSize = Annotated[int, Field(ge=0), parameters.Limited(field_limits.PATTERN_TOKENS)]


class RepetitionDetection(Wire):
    """`repetition_detection`, with vLLM's defaults: a `max_pattern_size` of 0 detects nothing,
    and a `min_pattern_size` of 0 is 1."""

    max_pattern_size: PatternSize = parameters.parameter(
        "The longest repeated pattern, in tokens; 0 detects nothing.", default=0
    )
    min_pattern_size: PatternSize = parameters.parameter(
        "The shortest repeated pattern, in tokens. Default: 1.", default=0
    )
    min_count: Annotated[int, Field(ge=0, le=2**31 - 1)] = parameters.parameter(
        "The number of repetitions that end the answer; at least 2.", default=0
    )

    def repetition(self) -> Repetition | None:
        """Return the condition that ends a choice. Raises `InvalidRequest` for sizes and
        counts that no repetition has."""
        if self.max_pattern_size == 0:
            return None
        if self.min_count < 2:
            raise refusal(
                "repetition_detection.min_count",
                "must be at least 2, because a pattern that occurs once is no repetition",
            )
        if self.min_pattern_size > self.max_pattern_size:
            raise refusal(
                "repetition_detection.min_pattern_size",
                f"must be at most `max_pattern_size`, which is {self.max_pattern_size}",
            )
        return Repetition(
            max_size=self.max_pattern_size,
            min_size=max(1, self.min_pattern_size),
            min_count=self.min_count,
        )


class StoppingFields(Wire):
    max_tokens: parameters.MaxTokens | None = parameters.parameter(
        "The limit of output tokens; -1 is no limit but those of the model. Default for "
        "completions: 16 on /v1, none on /v3. Completions accept 0 with `echo` or "
        "`prompt_logprobs`."
    )
    max_completion_tokens: parameters.MaxTokens | None = parameters.parameter(
        "The same as `max_tokens`, and replaces it."
    )
    max_output_tokens: parameters.MaxTokens | None = parameters.parameter(
        "The same as `max_tokens` and `max_completion_tokens`, and replaces both."
    )
    min_tokens: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = parameters.parameter(
        "With fewer output tokens, only the limit ends an answer."
    )
    stop: Stop | None = parameters.parameter(
        "One or more stop strings: at most 4 on /v1, 16 on /v3. A stop string may begin and end "
        "inside of tokens. An empty text is none."
    )
    include_stop_str_in_output: bool | None = parameters.parameter(
        "Whether the answer ends with the stop string. Default: false, but true for streams on /v3."
    )
    stop_token_ids: StopIds | None = parameters.parameter(
        "Tokens that end an answer, in addition to the model's end tokens."
    )
    ignore_eos: bool | None = parameters.parameter(
        "The model's end tokens do not end an answer; `stop_token_ids` still do."
    )
    thinking_token_budget: ReasoningTokens | None = parameters.parameter(
        "Ends the reasoning after this many tokens; -1 is no budget. For models that end their "
        "reasoning with one token."
    )
    reasoning_max_tokens: ReasoningTokens | None = parameters.parameter(
        "FastDeploy's name of `thinking_token_budget`, which replaces it."
    )
    repetition_detection: RepetitionDetection | None = parameters.parameter(
        "Ends an answer that repeats a pattern of tokens."
    )

    def stopping(
        self, dialect: Dialect, *, is_streamed: bool, default_limit: int | None
    ) -> Stopping:
        """Return the conditions that end a choice. Raises `InvalidRequest` for too many stop
        strings, and for limits that contradict each other."""
        stops = tuple(self.stop or ())
        max_stops = self.max_stops(dialect)
        if len(stops) > max_stops.value:
            raise refusal("stop", max_stops.sentence(len(stops)))
        name, limit = self.output_limit
        reasoning_limit = self.thinking_token_budget
        if reasoning_limit is None:
            reasoning_limit = self.reasoning_max_tokens
        repetition = self.repetition_detection
        return Stopping(
            max_tokens=None if limit == parameters.NO_LIMIT else limit,
            max_tokens_param=name,
            is_unlimited=limit == parameters.NO_LIMIT,
            default_max_tokens=default_limit,
            stop=stops,
            include_stop_text=self.includes_stop_text(dialect, is_streamed=is_streamed),
            min_tokens=self.min_tokens or 0,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=bool(self.ignore_eos),
            max_reasoning_tokens=None if reasoning_limit == -1 else reasoning_limit,
            repetition=None if repetition is None else repetition.repetition(),
        )

    def max_stops(self, dialect: Dialect) -> FieldLimit:
        return field_limits.STOPS_V3 if dialect.name == V3.name else field_limits.STOPS_V1

    def refuse_min_above_max(self) -> None:
        """Raises `InvalidRequest` for a `min_tokens` above the limit."""
        name, limit = self.output_limit
        if limit not in (None, parameters.NO_LIMIT) and (self.min_tokens or 0) > limit:
            raise refusal("min_tokens", f"must be at most `{name}`, which is {limit}")

    @property
    def output_limit(self) -> tuple[str, int | None]:
        """The limit of output tokens, after the name of its field. The newest name wins."""
        for name in ("max_output_tokens", "max_completion_tokens"):
            value: int | None = getattr(self, name)
            if value is not None:
                return name, value
        return "max_tokens", self.max_tokens

    def includes_stop_text(self, dialect: Dialect, *, is_streamed: bool) -> bool:
        if self.include_stop_str_in_output is not None:
            return self.include_stop_str_in_output
        return is_streamed and dialect.streams_stop_text
