"""The fields that look at single tokens or change how they are chosen, for every endpoint."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from serving.core.errors import InvalidRequest
from serving.core.logprobs import LogprobsOptions, Steering
from serving.protocols.fields import TokenId, TokenIds
from serving.protocols.reading import Wire, invalid

# OpenAI's limit for chat; also vLLM's default, and for completions more than OpenAI's 5.
MAX_TOP_LOGPROBS = 20

TopLogprobs = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)]
_Bias = Annotated[float, Field(ge=-100, le=100)]


def _bias_by_id(value: object) -> object:
    """JSON has only strings for keys."""
    if not isinstance(value, dict):
        raise invalid("must be an object of token ids and biases")
    for key in value:
        if not (key.isascii() and key.isdigit() and len(key) < 11):
            raise invalid(f"must have token ids as its keys, which {key[:40]!r} is not")
    return {int(key): bias for key, bias in value.items()}


def _words_of_ids(value: object) -> object:
    """FastDeploy has a list of tokens, each a word of its own; a word may be a list too."""
    if not isinstance(value, list):
        raise invalid("must be an array of token ids, or of arrays of token ids")
    return [[word] if isinstance(word, int) else word for word in value]


_IdAsKey = Annotated[str, Field(pattern="^[0-9]{1,10}$")]
_BiasByKey = Annotated[
    dict[_IdAsKey, _Bias], Field(json_schema_extra={"additionalProperties": False})
]
LogitBias = Annotated[
    dict[int, _Bias], BeforeValidator(_bias_by_id, json_schema_input_type=_BiasByKey)
]
_WordOfIds = Annotated[list[TokenId], Field(min_length=1)]
WordsOfIds = Annotated[
    list[_WordOfIds],
    BeforeValidator(_words_of_ids, json_schema_input_type=list[TokenId | _WordOfIds]),
]


class TokenFields(Wire):
    """What `Steering` and `LogprobsOptions` are read from."""

    logit_bias: LogitBias | None = None
    bad_words: list[Annotated[str, Field(min_length=1)]] | None = None
    bad_words_token_ids: WordsOfIds | None = None
    allowed_token_ids: TokenIds | None = None
    logits_processors_args: dict[str, Any] | None = None
    vllm_xargs: dict[str, Any] | None = None
    prompt_logprobs: TopLogprobs | None = None
    logprob_token_ids: TokenIds | None = None
    temp_scaled_logprobs: bool | None = None
    top_p_normalized_logprobs: bool | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None

    @property
    @abstractmethod
    def num_top_logprobs(self) -> int | None:
        """How many others are told with each token of the answer; None: nothing is. Each
        endpoint asks in its own words."""

    @property
    def wants_token_ids(self) -> bool:
        """Whether the answer has the ids of all tokens."""
        return bool(self.return_token_ids)

    def steering(self) -> Steering:
        """What is done to the choice of tokens. Raises `InvalidRequest` for two names of
        the same arguments."""
        if self.logits_processors_args and self.vllm_xargs:
            raise InvalidRequest(
                "`vllm_xargs` and `logits_processors_args` are two names for the same. Send one "
                "of them.",
                param="vllm_xargs",
            )
        return Steering(
            bias=tuple((self.logit_bias or {}).items()),
            bad_words=tuple(self.bad_words or ()),
            bad_word_ids=tuple(map(tuple, self.bad_words_token_ids or ())),
            allowed_ids=tuple(self.allowed_token_ids or ()),
            processor_args=self.logits_processors_args or self.vllm_xargs or None,
            processor_param="vllm_xargs" if self.vllm_xargs else "logits_processors_args",
        )

    def logprobs_options(self) -> LogprobsOptions:
        """What is told of each token. Raises `InvalidRequest` for a switch without light."""
        if self.num_top_logprobs is None and self.prompt_logprobs is None:
            self._refuse_alone()
        return LogprobsOptions(
            num_top=self.num_top_logprobs,
            num_top_of_prompt=self.prompt_logprobs,
            token_ids=tuple(self.logprob_token_ids or ()),
            is_temperature_scaled=bool(self.temp_scaled_logprobs),
            is_top_p_normalized=bool(self.top_p_normalized_logprobs),
            tokens_as_ids=bool(self.return_tokens_as_token_ids),
        )

    def _refuse_alone(self) -> None:
        for name in ("logprob_token_ids", "temp_scaled_logprobs", "top_p_normalized_logprobs"):
            if getattr(self, name):
                raise InvalidRequest(
                    f"`{name}` says which log-probabilities are returned, but none were asked "
                    "for. Ask for `logprobs` too.",
                    param=name,
                )
