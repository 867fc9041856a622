"""The parameters that choose the next token: sampling, beam search, speculative decoding, changes
of logits, log-probabilities. And those that end an answer: limits, stop strings and tokens."""

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from vinery_serving.core import field_limits, request
from vinery_serving.core.dialects import V3, Dialect
from vinery_serving.core.errors import InvalidRequest, cited
from vinery_serving.core.field_limits import FieldLimit
from vinery_serving.protocols.common import reading

Penalty = Annotated[float, Field(ge=-2, le=2)]
Probability = Annotated[float, Field(ge=0, le=1)]
NumSamples = Annotated[int, Field(ge=1), reading.Limited(field_limits.CHOICES)]
_MAX_WIDTH = 64  # the batch of one step has no room for more candidates
# The model rejects most tokens beyond 64, and the batch of one step must hold them.
DraftTokens = Annotated[int, Field(ge=1, le=64)]


_Bias = Annotated[float, Field(ge=-100, le=100)]
_IdAsKey = Annotated[str, Field(pattern="^[0-9]{1,10}$")]
_BiasByKey = Annotated[
    dict[_IdAsKey, _Bias], Field(json_schema_extra={"additionalProperties": False})
]
_WordOfIds = Annotated[
    list[reading.TokenId],
    Field(min_length=1, fail_fast=True),
    reading.Limited(field_limits.BAD_WORD_IDS),
]
_Word = Annotated[str, Field(min_length=1), reading.Limited(field_limits.BAD_WORD_CHARS)]
Words = Annotated[list[_Word], Field(fail_fast=True), reading.Limited(field_limits.BAD_WORDS)]


def _bias_by_id(value: object) -> object:
    """The keys of JSON objects are strings."""
    if not isinstance(value, dict):
        return value
    for key in value:
        if not (key.isascii() and key.isdigit() and len(key) < 11):
            raise reading.invalid(
                f"must have token ids as keys; {cited(repr(key[:40]))} is no token id"
            )
    return {int(key): bias for key, bias in value.items()}


def _words_of_ids(value: object) -> object:
    """In FastDeploy's list each token id is a word. A word may also be a list."""
    if not isinstance(value, list):
        return value
    return [[word] if isinstance(word, int) else word for word in value]


LogitBias = Annotated[
    dict[int, _Bias],
    BeforeValidator(_bias_by_id, json_schema_input_type=_BiasByKey),
    reading.Limited(field_limits.LOGIT_BIAS),
]
WordsOfIds = Annotated[
    list[_WordOfIds],
    Field(fail_fast=True),
    BeforeValidator(_words_of_ids, json_schema_input_type=list[reading.TokenId | _WordOfIds]),
    reading.Limited(field_limits.BAD_WORD_SEQUENCES),
]
AllowedIds = Annotated[reading.TokenIds, reading.Limited(field_limits.ALLOWED_IDS)]
LogprobIds = Annotated[reading.TokenIds, reading.Limited(field_limits.LOGPROB_IDS)]


def _for_the_engine(value: dict[str, object]) -> dict[str, object]:
    """Messages to the engine have integers of 64 bits."""
    nodes: list[object] = [value]
    for node in nodes:
        if isinstance(node, dict):
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
        elif isinstance(node, int) and not -(2**63) <= node < 2**64:
            raise reading.invalid("must not have an integer of more than 64 bits")
    return value


EngineArgs = Annotated[reading.Args, AfterValidator(_for_the_engine)]


def _require_at_least(n: int, best_of: int) -> None:
    if best_of < n:
        raise reading.refusal("best_of", f"must be at least `n`, which is {n}")


_STOP_CHARS = reading.Limited(field_limits.STOP_CHARS)


def _one_or_many(value: object) -> object:
    """An empty text is no stop string: forms of tools without code send it."""
    if isinstance(value, str):
        return [_STOP_CHARS.check(value)] if value else []
    if isinstance(value, list):
        return value
    raise reading.invalid("must be a string or an array of strings")


_StopText = Annotated[str, Field(min_length=1), _STOP_CHARS]
_OneStop = Annotated[str, _STOP_CHARS]
# /v1 has fewer.
Stop = Annotated[
    list[_StopText],
    Field(fail_fast=True),
    BeforeValidator(_one_or_many, json_schema_input_type=_OneStop | list[_StopText]),
    reading.Limited(field_limits.STOPS_V3),
]
StopIds = Annotated[reading.TokenIds, reading.Limited(field_limits.STOP_IDS)]
# 0 ends the reasoning at once. vLLM uses negative values for "no budget".
ReasoningTokens = Annotated[int, Field(ge=-1, le=2**32 - 1)]
PatternSize = Annotated[int, Field(ge=0), reading.Limited(field_limits.PATTERN_TOKENS)]


class RepetitionDetection(reading.Wire):
    """`repetition_detection`, with vLLM's defaults: a `max_pattern_size` of 0 detects nothing,
    and a `min_pattern_size` of 0 is 1."""

    max_pattern_size: PatternSize = reading.parameter(
        "The longest repeated pattern, in tokens; 0 detects nothing.", default=0
    )
    min_pattern_size: PatternSize = reading.parameter(
        "The shortest repeated pattern, in tokens. Default: 1.", default=0
    )
    min_count: Annotated[int, Field(ge=0, le=2**31 - 1)] = reading.parameter(
        "The number of repetitions that end the answer; at least 2.", default=0
    )

    def repetition(self) -> request.Repetition | None:
        """Return the condition that ends a choice. Raises `InvalidRequest` for sizes and
        counts that no repetition has."""
        if self.max_pattern_size == 0:
            return None
        if self.min_count < 2:
            raise reading.refusal(
                "repetition_detection.min_count",
                "must be at least 2, because a pattern that occurs once is no repetition",
            )
        if self.min_pattern_size > self.max_pattern_size:
            raise reading.refusal(
                "repetition_detection.min_pattern_size",
                f"must be at most `max_pattern_size`, which is {self.max_pattern_size}",
            )
        return request.Repetition(
            max_size=self.max_pattern_size,
            min_size=max(1, self.min_pattern_size),
            min_count=self.min_count,
        )


class DecodingFields(reading.Wire):
    """The ranges are those of OpenAI's description, or of OVMS for fields that only OVMS has."""

    # Sampling

    temperature: Annotated[float, Field(ge=0, le=2)] | None = reading.parameter(
        "0 and values below 0.00001 are greedy. Default: the model's generation_config.json, "
        "else 1."
    )
    top_p: Probability | None = reading.parameter(
        "0 keeps only the most likely token. Default: the model's, else 1."
    )
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = reading.parameter(
        "0 and -1 keep all tokens. Default: the model's, else all on /v1 and 40 on /v3."
    )
    min_p: Probability | None = reading.parameter(
        "Excludes tokens with a probability below this fraction of the most likely token's; 1 "
        "keeps only the most likely. Default: the model's."
    )
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = reading.parameter(
        "Equal seeds draw equal random numbers. Rounding depends on the cache and on what else "
        "runs, so answers may still differ, above all at high temperatures and in bf16. Negative "
        "seeds are mapped to the engine's range. Default: random."
    )
    frequency_penalty: Penalty | None = reading.parameter(
        "Grows with the number of times that a token was generated. Default: the model's."
    )
    presence_penalty: Penalty | None = reading.parameter(
        "Applies to tokens that were generated before. Default: the model's."
    )
    # The engine computes with float16, and refuses 0: smaller values would become 0.
    repetition_penalty: Annotated[float, Field(ge=0.01, le=1000)] | None = reading.parameter(
        "Applies to tokens of the prompt, too; 1 is none. Default: the model's."
    )
    n: NumSamples | None = reading.parameter(
        "The number of answers. Each answer has its own seed and is streamed during generation; "
        "`best_of` is not needed."
    )

    def sampling(self) -> request.Sampling:
        """`top_p` 0 becomes `top_k` 1, because engines refuse an empty nucleus."""
        values = {name: getattr(self, name) for name in request.SAMPLERS}
        if self.top_p == 0:
            values |= {"top_p": 1.0, "top_k": 1}
        if self.seed is not None:
            # Engines take no negative seeds. The modulus keeps equal seeds equal.
            values["seed"] = self.seed % 2**63
        return request.Sampling(**values)

    # Ends of an answer

    max_tokens: reading.MaxTokens | None = reading.parameter(
        "The limit of output tokens; -1 is no limit but those of the model. Default for "
        "completions: 16 on /v1, none on /v3. Completions accept 0 with `echo` or "
        "`prompt_logprobs`."
    )
    max_completion_tokens: reading.MaxTokens | None = reading.parameter(
        "The same as `max_tokens`, and replaces it."
    )
    max_output_tokens: reading.MaxTokens | None = reading.parameter(
        "The same as `max_tokens` and `max_completion_tokens`, and replaces both."
    )
    min_tokens: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = reading.parameter(
        "With fewer output tokens, only the limit ends an answer."
    )
    stop: Stop | None = reading.parameter(
        "One or more stop strings: at most 4 on /v1, 16 on /v3. A stop string may begin and end "
        "inside of tokens. An empty text is none."
    )
    include_stop_str_in_output: bool | None = reading.parameter(
        "Whether the answer ends with the stop string. Default: false, but true for streams on /v3."
    )
    stop_token_ids: StopIds | None = reading.parameter(
        "Tokens that end an answer, in addition to the model's end tokens."
    )
    ignore_eos: bool | None = reading.parameter(
        "The model's end tokens do not end an answer; `stop_token_ids` still do."
    )
    thinking_token_budget: ReasoningTokens | None = reading.parameter(
        "Ends the reasoning after this many tokens; -1 is no budget. For models that end their "
        "reasoning with one token."
    )
    repetition_detection: RepetitionDetection | None = reading.parameter(
        "Ends an answer that repeats a pattern of tokens."
    )

    def stopping(
        self, dialect: Dialect, *, is_streamed: bool, default_limit: int | None
    ) -> request.Stopping:
        """Return the conditions that end a choice. Raises `InvalidRequest` for too many stop
        strings, and for limits that contradict each other."""
        stops = tuple(self.stop or ())
        max_stops = self.max_stops(dialect)
        if len(stops) > max_stops.value:
            raise reading.refusal("stop", max_stops.sentence(len(stops)))
        name, limit = self.output_limit
        reasoning_limit = self.thinking_token_budget
        repetition = self.repetition_detection
        return request.Stopping(
            max_tokens=None if limit == reading.NO_LIMIT else limit,
            max_tokens_param=name,
            is_unlimited=limit == reading.NO_LIMIT,
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
        if limit not in (None, reading.NO_LIMIT) and (self.min_tokens or 0) > limit:
            raise reading.refusal("min_tokens", f"must be at most `{name}`, which is {limit}")

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

    # Beam search, and the number of sampled candidates. OpenAI samples `best_of` answers and
    # returns the most likely of them; OVMS has `best_of` beams. Each URL tree follows its system.

    best_of: NumSamples | None = reading.parameter(
        "On /v3 the beam width. On /v1 the number of sampled answers, of which the `n` with the "
        "best mean log-probability are returned; not in streams."
    )
    use_beam_search: bool | None = reading.parameter(
        "Beam search with `best_of` beams, or `n` without `best_of`; at most 64."
    )
    length_penalty: Annotated[float, Field(ge=-100, le=100)] | None = reading.parameter(
        "Beam search: the exponent of the answer's length. A score is divided by that power."
    )
    early_stopping: bool | Literal["never"] | None = reading.parameter(
        "Beam search: when the search ends; true, false or `never`."
    )
    no_repeat_ngram_size: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = reading.parameter(
        "Beam search: no sequence of this many tokens occurs twice."
    )

    def beams(self, n: int, dialect: Dialect) -> request.BeamSearch | None:
        """Return the beam search, or None. Raises `InvalidRequest` for a wrong width, and for
        options of beam search without beam search."""
        width = self._width(n, dialect)
        if width is None:
            self._refuse_without_search()
            return None
        _require_at_least(n, width)
        if width > _MAX_WIDTH:
            param = "n" if self.best_of is None else "best_of"
            raise reading.refusal(param, f"must be at most {_MAX_WIDTH} for beam search")
        return request.BeamSearch(
            width=width,
            length_penalty=1.0 if self.length_penalty is None else self.length_penalty,
            stops_early=None if self.early_stopping == "never" else bool(self.early_stopping),
            no_repeat_ngram_size=self.no_repeat_ngram_size or 0,
            param="use_beam_search" if self.use_beam_search else "best_of",
        )

    def num_candidates(self, n: int, dialect: Dialect, *, is_streamed: bool) -> int | None:
        """Return the number of answers to sample for each prompt, or None for `n`. Raises
        `InvalidRequest`."""
        if self.best_of is None or self._width(n, dialect) is not None:
            return None
        _require_at_least(n, self.best_of)
        if self.best_of == n:
            return None
        if is_streamed:
            raise reading.refusal(
                "best_of",
                "above `n` cannot be streamed, because the best answers are known only at the "
                "end. Set `stream` to false",
            )
        return self.best_of

    def _width(self, n: int, dialect: Dialect) -> int | None:
        if self.use_beam_search:
            return self.best_of or n
        if self.best_of is not None and self.best_of > 1 and dialect.best_of_is_beams:
            return self.best_of
        return None

    def _refuse_without_search(self) -> None:
        for name, harmless in (
            ("length_penalty", 1.0),
            ("early_stopping", False),
            ("no_repeat_ngram_size", None),
        ):
            value = getattr(self, name)
            if value is not None and value != harmless:
                raise reading.refusal(
                    name,
                    "is an option of beam search. Set `use_beam_search` to true, or leave it out",
                )

    # Speculative decoding: OVMS's fields, for models that are served with it

    num_assistant_tokens: DraftTokens | None = reading.parameter(
        "The number of tokens that a draft model, head or prompt lookup proposes in a step, for "
        "models served with speculation. Default: generation_config.json, else 5, or fewer where "
        "answers are slower. No effect while the model proposes none for this reason."
    )
    assistant_confidence_threshold: Annotated[float, Field(gt=0, lt=1)] | None = reading.parameter(
        "A draft model ends its proposal with a token of less confidence, or with the 16th token; "
        "not with `num_assistant_tokens`. A head takes no threshold."
    )
    max_ngram_size: DraftTokens | None = reading.parameter(
        "The longest sequence of tokens that a prompt lookup searches for. Default: 3."
    )

    def speculation(self) -> request.SpeculativeDecoding:
        """Return the options of speculative decoding. Raises `InvalidRequest` for two
        options that exclude each other."""
        if self.num_assistant_tokens is not None and (
            self.assistant_confidence_threshold is not None
        ):
            raise InvalidRequest(
                "`num_assistant_tokens` and `assistant_confidence_threshold` exclude each other. "
                "Send one of them.",
                param="assistant_confidence_threshold",
            )
        return request.SpeculativeDecoding(
            self.num_assistant_tokens, self.assistant_confidence_threshold, self.max_ngram_size
        )

    # Single tokens

    logit_bias: LogitBias | None = reading.parameter(
        "Added to the logits of these token ids; from -100 to 100."
    )
    bad_words: Words | None = reading.parameter(
        "Words that the model does not generate at the start of a text or after a space."
    )
    bad_words_token_ids: WordsOfIds | None = reading.parameter(
        "Token ids, or sequences of token ids, that the model does not generate."
    )
    allowed_token_ids: AllowedIds | None = reading.parameter(
        "The model generates only these tokens."
    )
    logits_processors_args: EngineArgs | None = reading.parameter(
        "Arguments for the administrator's logits processors; refused if the model has none."
    )
    # vLLM has the same limit; OpenAI has 5 for completions.
    prompt_logprobs: reading.TopLogprobs | None = reading.parameter(
        "The number of alternatives for each token of the prompt; not in streams."
    )
    logprob_token_ids: LogprobIds | None = reading.parameter(
        "Tokens whose log-probabilities are always returned."
    )
    temp_scaled_logprobs: bool | None = reading.parameter(
        "Log-probabilities after division of the logits by the temperature."
    )
    top_p_normalized_logprobs: bool | None = reading.parameter(
        "Log-probabilities among the tokens that `top_p` keeps."
    )
    return_token_ids: bool | None = reading.parameter(
        "Returns the ids of all tokens of the prompt and the answer, and their text."
    )
    return_tokens_as_token_ids: bool | None = reading.parameter(
        "Writes the tokens of log-probabilities as `token_id:5`."
    )

    @property
    @abstractmethod
    def num_top_logprobs(self) -> int | None:
        """The number of alternatives for each token of the answer. None: the answer has no
        log-probabilities. The field differs by endpoint."""

    def steering(self) -> request.Steering:
        return request.Steering(
            logit_bias=tuple((self.logit_bias or {}).items()),
            bad_words=tuple(self.bad_words or ()),
            bad_words_token_ids=tuple(map(tuple, self.bad_words_token_ids or ())),
            allowed_token_ids=tuple(self.allowed_token_ids or ()),
            logits_processors_args=self.logits_processors_args or None,
        )

    def logprobs_options(self) -> request.LogprobsOptions:
        """Return the log-probabilities that the client wants. Raises `InvalidRequest` for
        options without log-probabilities."""
        if self.num_top_logprobs is None and self.prompt_logprobs is None:
            for name in ("logprob_token_ids", "temp_scaled_logprobs", "top_p_normalized_logprobs"):
                if getattr(self, name):
                    raise reading.refusal(
                        name,
                        "selects log-probabilities, but the request asks for none. "
                        "Send `logprobs` too",
                    )
        return request.LogprobsOptions(
            num_top=self.num_top_logprobs,
            num_top_of_prompt=self.prompt_logprobs,
            token_ids=tuple(self.logprob_token_ids or ()),
            is_temperature_scaled=bool(self.temp_scaled_logprobs),
            is_top_p_normalized=bool(self.top_p_normalized_logprobs),
            tokens_as_ids=bool(self.return_tokens_as_token_ids),
        )
