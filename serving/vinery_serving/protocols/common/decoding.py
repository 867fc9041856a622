"""The parameters that choose the next token: sampling, beam search, speculative decoding, changes
of logits, and log-probabilities."""

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from vinery_serving.core import field_limits, request
from vinery_serving.core.dialects import Dialect
from vinery_serving.core.errors import InvalidRequest, cited
from vinery_serving.protocols.common.parameters import (
    EVERY_SYSTEM,
    Args,
    Limited,
    TokenId,
    TokenIds,
    TopLogprobs,
    parameter,
)
from vinery_serving.protocols.common.reading import Wire, invalid, refusal

Penalty = Annotated[float, Field(ge=-2, le=2)]
Probability = Annotated[float, Field(ge=0, le=1)]
NumSamples = Annotated[int, Field(ge=1), Limited(field_limits.CHOICES)]
_MAX_WIDTH = 64  # the batch of one step has no room for more candidates
# The model rejects most tokens beyond 64, and the batch of one step must hold them.
DraftTokens = Annotated[int, Field(ge=1, le=64)]


class SamplingFields(Wire):
    """The fields of `Sampling`. The ranges are those of OpenAI's description, or of OVMS for
    the fields that only OVMS has."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = parameter(
        "0 and values below 0.00001 are greedy. Default: the model's generation_config.json, "
        "else 1.",
        of=EVERY_SYSTEM,
    )
    top_p: Probability | None = parameter(
        "0 keeps only the most likely token. Default: the model's, else 1.", of=EVERY_SYSTEM
    )
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = parameter(
        "0 and -1 keep all tokens. Default: the model's, else all on /v1 and 40 on /v3.",
        of="OVMS, vLLM, FastDeploy",
    )
    min_p: Probability | None = parameter(
        "Excludes tokens with a probability below this fraction of the most likely token's; 1 "
        "keeps only the most likely. Default: the model's.",
        of="OVMS, vLLM, FastDeploy",
    )
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = parameter(
        "Equal seeds draw equal random numbers. Rounding depends on the cache and on what else "
        "runs, so answers may still differ, above all at high temperatures and in bf16. Negative "
        "seeds are mapped to the engine's range. Default: random.",
        of=EVERY_SYSTEM,
    )
    frequency_penalty: Penalty | None = parameter(
        "Grows with the number of times that a token was generated. Default: the model's.",
        of=EVERY_SYSTEM,
    )
    presence_penalty: Penalty | None = parameter(
        "Applies to tokens that were generated before. Default: the model's.", of=EVERY_SYSTEM
    )
    # The engine computes with float16, and refuses 0: smaller values would become 0.
    repetition_penalty: Annotated[float, Field(ge=0.01, le=1000)] | None = parameter(
        "Applies to tokens of the prompt, too; 1 is none. Default: the model's.",
        of="OVMS, vLLM, FastDeploy",
    )
    n: NumSamples | None = parameter(
        "The number of answers. Each answer has its own seed and is streamed during generation; "
        "`best_of` is not needed.",
        of=EVERY_SYSTEM,
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


class SearchFields(Wire):
    """The fields of `BeamSearch`, and the number of sampled candidates. OpenAI samples `best_of`
    answers and returns the most likely of them; OVMS has `best_of` beams. Each URL tree follows its
    system."""

    best_of: NumSamples | None = parameter(
        "On /v3 the beam width. On /v1 the number of sampled answers, of which the `n` with the "
        "best mean log-probability are returned; not in streams.",
        of="OVMS, OpenAI, FastDeploy",
    )
    use_beam_search: bool | None = parameter(
        "Beam search with `best_of` beams, or `n` without `best_of`; at most 64.", of="vLLM"
    )
    length_penalty: Annotated[float, Field(ge=-100, le=100)] | None = parameter(
        "Beam search: the exponent of the answer's length. A score is divided by that power.",
        of="OVMS, vLLM",
    )
    early_stopping: bool | Literal["never"] | None = parameter(
        "Beam search: when the search ends; true, false or `never`.", of="vLLM"
    )
    no_repeat_ngram_size: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = parameter(
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
            raise refusal(param, f"must be at most {_MAX_WIDTH} for beam search")
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
            raise refusal(
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
                raise refusal(
                    name,
                    "is an option of beam search. Set `use_beam_search` to true, or leave it out",
                )


class SpeculationFields(Wire):
    """OVMS's fields for models that are served with speculative decoding."""

    num_assistant_tokens: DraftTokens | None = parameter(
        "The number of tokens that a draft model, head or prompt lookup proposes in a step, for "
        "models served with speculation. Default: generation_config.json, else 5, or fewer where "
        "answers are slower. No effect while the model proposes none for this reason.",
        of="OVMS",
    )
    assistant_confidence_threshold: Annotated[float, Field(gt=0, lt=1)] | None = parameter(
        "A draft model ends its proposal with a token of less confidence, or with the 16th token; "
        "not with `num_assistant_tokens`. A head takes no threshold.",
        of="OVMS",
    )
    max_ngram_size: DraftTokens | None = parameter(
        "The longest sequence of tokens that a prompt lookup searches for. Default: 3.", of="OVMS"
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


_Bias = Annotated[float, Field(ge=-100, le=100)]
_IdAsKey = Annotated[str, Field(pattern="^[0-9]{1,10}$")]
_BiasByKey = Annotated[
    dict[_IdAsKey, _Bias], Field(json_schema_extra={"additionalProperties": False})
]
_WordOfIds = Annotated[
    list[TokenId], Field(min_length=1, fail_fast=True), Limited(field_limits.BAD_WORD_IDS)
]
_Word = Annotated[str, Field(min_length=1), Limited(field_limits.BAD_WORD_CHARS)]
Words = Annotated[list[_Word], Field(fail_fast=True), Limited(field_limits.BAD_WORDS)]


def _bias_by_id(value: object) -> object:
    """The keys of JSON objects are strings."""
    if not isinstance(value, dict):
        return value
    for key in value:
        if not (key.isascii() and key.isdigit() and len(key) < 11):
            raise invalid(f"must have token ids as keys; {cited(repr(key[:40]))} is no token id")
    return {int(key): bias for key, bias in value.items()}


def _words_of_ids(value: object) -> object:
    """In FastDeploy's list each token id is a word. A word may also be a list."""
    if not isinstance(value, list):
        return value
    return [[word] if isinstance(word, int) else word for word in value]


LogitBias = Annotated[
    dict[int, _Bias],
    BeforeValidator(_bias_by_id, json_schema_input_type=_BiasByKey),
    Limited(field_limits.LOGIT_BIAS),
]
WordsOfIds = Annotated[
    list[_WordOfIds],
    Field(fail_fast=True),
    BeforeValidator(_words_of_ids, json_schema_input_type=list[TokenId | _WordOfIds]),
    Limited(field_limits.BAD_WORD_SEQUENCES),
]
AllowedIds = Annotated[TokenIds, Limited(field_limits.ALLOWED_IDS)]
LogprobIds = Annotated[TokenIds, Limited(field_limits.LOGPROB_IDS)]


def _for_the_engine(value: dict[str, object]) -> dict[str, object]:
    """Messages to the engine have integers of 64 bits."""
    nodes: list[object] = [value]
    for node in nodes:
        if isinstance(node, dict):
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
        elif isinstance(node, int) and not -(2**63) <= node < 2**64:
            raise invalid("must not have an integer of more than 64 bits")
    return value


EngineArgs = Annotated[Args, AfterValidator(_for_the_engine)]


class TokenFields(Wire):
    logit_bias: LogitBias | None = parameter(
        "Added to the logits of these token ids; from -100 to 100.", of="OpenAI, vLLM"
    )
    bad_words: Words | None = parameter(
        "Words that the model does not generate at the start of a text or after a space.",
        of="vLLM, FastDeploy",
    )
    bad_words_token_ids: WordsOfIds | None = parameter(
        "Token ids, or sequences of token ids, that the model does not generate.", of="FastDeploy"
    )
    allowed_token_ids: AllowedIds | None = parameter(
        "The model generates only these tokens.", of="vLLM"
    )
    logits_processors_args: EngineArgs | None = parameter(
        "Arguments for the administrator's logits processors; refused if the model has none.",
        of="FastDeploy",
    )
    vllm_xargs: EngineArgs | None = parameter(
        "vLLM's name of `logits_processors_args`; send only one of both.", of="vLLM"
    )
    # vLLM has the same limit; OpenAI has 5 for completions.
    prompt_logprobs: TopLogprobs | None = parameter(
        "The number of alternatives for each token of the prompt; not in streams.", of="vLLM"
    )
    logprob_token_ids: LogprobIds | None = parameter(
        "Tokens whose log-probabilities are always returned.", of="vLLM"
    )
    temp_scaled_logprobs: bool | None = parameter(
        "Log-probabilities after division of the logits by the temperature.", of="FastDeploy"
    )
    top_p_normalized_logprobs: bool | None = parameter(
        "Log-probabilities among the tokens that `top_p` keeps.", of="FastDeploy"
    )
    return_token_ids: bool | None = parameter(
        "Returns the ids of all tokens of the prompt and the answer, and their text.",
        of="vLLM, FastDeploy",
    )
    return_tokens_as_token_ids: bool | None = parameter(
        "Writes the tokens of log-probabilities as `token_id:5`.", of="vLLM"
    )

    @property
    @abstractmethod
    def num_top_logprobs(self) -> int | None:
        """The number of alternatives for each token of the answer. None: the answer has no
        log-probabilities. The field differs by endpoint."""

    def steering(self) -> request.Steering:
        """Raises `InvalidRequest` for both names of the processors' arguments."""
        if self.logits_processors_args and self.vllm_xargs:
            raise refusal(
                "vllm_xargs",
                "and `logits_processors_args` are two names of one parameter. Send one of them",
            )
        return request.Steering(
            bias=tuple((self.logit_bias or {}).items()),
            bad_words=tuple(self.bad_words or ()),
            bad_word_ids=tuple(map(tuple, self.bad_words_token_ids or ())),
            allowed_ids=tuple(self.allowed_token_ids or ()),
            processor_args=self.logits_processors_args or self.vllm_xargs or None,
            processor_param="vllm_xargs" if self.vllm_xargs else "logits_processors_args",
        )

    def logprobs_options(self) -> request.LogprobsOptions:
        """Return the log-probabilities that the client wants. Raises `InvalidRequest` for
        options without log-probabilities."""
        if self.num_top_logprobs is None and self.prompt_logprobs is None:
            for name in ("logprob_token_ids", "temp_scaled_logprobs", "top_p_normalized_logprobs"):
                if getattr(self, name):
                    raise refusal(
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


def _require_at_least(n: int, best_of: int) -> None:
    if best_of < n:
        raise refusal("best_of", f"must be at least `n`, which is {n}")
