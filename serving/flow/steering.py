"""What a request wants to see of, or do to, the choice of tokens: from its own words to what
the engine is told, and back from what the engine says to tokens with text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from serving.core.errors import InvalidRequest, UnsupportedParameter
from serving.core.logprobs import (
    LogprobsOptions,
    Steering,
    Token,
    TopLogprob,
    without_leading_spaces,
)
from serving.core.request import GenerationRequest, RawPrompts
from serving.flow.directory import Engine
from serving.prompting.assets import ModelAssets, Prompt
from serving.prompting.tokenizer import Tokenizer
from serving.transport.messages import (
    Hello,
    LogitsSpec,
    LogprobsSpec,
    ReasoningBudget,
    SamplingParams,
    TokenLogprobs,
)


def logits_spec(
    request: GenerationRequest, engine: Engine, prompt: Prompt, sampling: SamplingParams
) -> LogitsSpec | None:
    """None for the great majority: requests that let the model be. Raises
    `InvalidRequest` for a token that the model does not have."""
    steering, wish, assets = request.steering, request.logprobs, engine.assets
    tells = wish.num_top is not None or wish.num_top_of_prompt is not None
    budget = _thought_budget(request, engine, prompt)
    if steering.first_field is None and not tells and budget is None:
        return None
    _check_ids(request, assets.tokenizer.vocab_size)
    return LogitsSpec(
        bias=steering.bias,
        bad_words=(*steering.bad_word_ids, *_spellings(steering.bad_words, assets.tokenizer)),
        allowed_ids=steering.allowed_ids,
        processor_args=None if steering.processor_args is None else dict(steering.processor_args),
        budget=budget,
        logprobs=_logprobs(wish.num_top, wish, sampling),
        prompt_logprobs=_logprobs(num_top_of_prompt(request), wish, sampling),
    )


def num_top_of_prompt(request: GenerationRequest) -> int | None:
    """How many others are told with each token of the prompt; None: it is not scored. An
    echoed prompt is, when the answer is."""
    wish = request.logprobs
    if wish.num_top_of_prompt is not None:
        return wish.num_top_of_prompt
    is_echoed = isinstance(request.prompt, RawPrompts) and request.prompt.echo
    return wish.num_top if is_echoed else None


def check_engine(request: GenerationRequest, hello: Hello) -> None:
    """Raises `UnsupportedParameter` for what this engine cannot do."""
    if request.handling.cache_salt is not None and not hello.supports_cache_salt:
        raise UnsupportedParameter(
            "This model's prompts cannot be kept apart in its prefix cache: its graph has no "
            "place for a salt. Leave `cache_salt` out, or ask the administrator to turn the "
            "model's option enable_prefix_caching off.",
            param="cache_salt",
        )
    has_budget = request.stopping.max_reasoning_tokens is not None
    field = (
        request.steering.first_field
        or _first_logprobs_field(request)
        or ("thinking_token_budget" if has_budget else None)
    )
    if field is None:
        return
    if not hello.has_logits_hook:
        raise UnsupportedParameter(
            f"`{field}` is not available for this model: the probabilities of its tokens can be "
            "neither seen nor changed on its device. Leave it out.",
            param=field,
        )
    if request.steering.processor_args is not None and not hello.has_processors:
        raise UnsupportedParameter(
            "This model has no logits processors. Leave the arguments out, or ask its "
            "administrator to set the option logits_processors.",
            param=request.steering.processor_param,
        )
    if num_top_of_prompt(request) is not None and not hello.can_score_prompts:
        raise UnsupportedParameter(
            "This model cannot tell the log-probabilities of a prompt while its option "
            "enable_prefix_caching is on.",
            param="prompt_logprobs",
        )


class TokenWriter:
    """Writes tokens out, as one request wants them."""

    def __init__(self, assets: ModelAssets, wish: LogprobsOptions) -> None:
        self._kit, self._tokenizer = assets, assets.tokenizer
        self._shows_ids = wish.tokens_as_ids

    def answer(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]
    ) -> tuple[Token, ...]:
        """Tokens of an answer."""
        pairs = zip(token_ids, logprobs, strict=True)
        return tuple(self._token(id_, told) for id_, told in pairs)

    def prompt(self, prompt: Prompt, logprobs: Sequence[TokenLogprobs]) -> tuple[Token, ...]:
        """All tokens of a prompt; the first follows nothing."""
        first, *rest = prompt.token_ids
        text, raw = self._written(first)
        tokens = (Token(first, text, raw, None, None), *self.answer(rest, logprobs))
        return self._placed(tokens, self._kit.text_of(prompt).encode())

    def _placed(self, tokens: Sequence[Token], text: bytes) -> tuple[Token, ...]:
        """The same tokens, each with the bytes that it has in the text: special ones may stand
        around it, and the first may begin with spaces that it lacks."""
        placed: list[Token] = []
        at, has_begun = 0, False
        for number, token in enumerate(tokens):
            own = token
            if token.id in self._tokenizer.special_texts and not text.startswith(token.raw, at):
                own = replace(token, raw=b"")
            elif not has_begun:
                own, has_begun = (
                    without_leading_spaces(token, _num_lacking(tokens[number:], text)),
                    True,
                )
            placed.append(own)
            at += len(own.raw)
        return tuple(placed)

    def _token(self, token_id: int, told: TokenLogprobs) -> Token:
        text, raw = self._written(token_id)
        others = tuple(
            TopLogprob(id_, *self._written(id_), logprob) for id_, logprob in told.others
        )
        return Token(token_id, text, raw, told.logprob, told.rank, others)

    def _written(self, token_id: int) -> tuple[str, bytes]:
        raw = self._tokenizer.token_bytes(token_id)
        return f"token_id:{token_id}" if self._shows_ids else raw.decode(errors="replace"), raw


def _num_lacking(tokens: Iterable[Token], text: bytes) -> int:
    """How many of the spaces with which its tokens begin are not in the text."""
    told = b"".join(token.raw for token in tokens)
    count = _num_spaces(told) - _num_spaces(text)
    return count if count > 0 and told.startswith(text, count) else 0


def _num_spaces(text: bytes) -> int:
    return len(text) - len(text.lstrip(b" "))


def _logprobs(
    num_top: int | None, wish: LogprobsOptions, sampling: SamplingParams
) -> LogprobsSpec | None:
    if num_top is None:
        return None
    is_scaled = wish.is_temperature_scaled and sampling.temperature > 0
    return LogprobsSpec(
        num_top=num_top,
        token_ids=wish.token_ids,
        temperature=sampling.temperature if is_scaled else 1.0,
        top_p=sampling.top_p if wish.is_top_p_normalized else 1.0,
    )


def _spellings(words: Iterable[str], tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """The tokens of each word at the beginning of a text and after a space."""
    found: dict[tuple[int, ...], None] = {}
    for word in words:
        for text in (word, f" {word.lstrip()}"):
            found[tuple(tokenizer.encode(text))] = None
    return [ids for ids in found if ids]


def _thought_budget(
    request: GenerationRequest, engine: Engine, prompt: Prompt
) -> ReasoningBudget | None:
    """None where thoughts have no limit, or the model has no thoughts. Raises
    `UnsupportedParameter` for a limit that cannot be held."""
    asked, tags = request.stopping.max_reasoning_tokens, engine.family.parser.reasoning
    limit = prompt.reasoning_budget if asked is None else asked
    if asked is None and request.beams is not None:
        return None  # beams are out of reach, and the limit of an effort is only a wish
    if limit is None or tags is None or isinstance(request.prompt, RawPrompts):
        return None
    encode = engine.assets.tokenizer.encode
    end = tuple(encode(tags.close.text))
    if len(end) != 1:
        # Words can be cut into tokens in many ways, of which the engine would know one.
        if asked is None:
            return None
        raise UnsupportedParameter(
            "This model ends its thoughts in words rather than with a token of its own, so "
            "they cannot be limited. Leave out `thinking_token_budget` and "
            "`reasoning_max_tokens`.",
            param="thinking_token_budget",
        )
    return ReasoningBudget(
        max_tokens=limit,
        is_open=prompt.opens_reasoning or tags.starts_open,
        start=tuple(encode(tags.open.text)),
        end=end,
        closing_ids=tuple(encode(tags.closing)),
    )


def _check_ids(request: GenerationRequest, vocab_size: int) -> None:
    steering: Steering = request.steering
    named: tuple[tuple[str, Iterable[int]], ...] = (
        ("logit_bias", (id_ for id_, _ in steering.bias)),
        ("bad_words_token_ids", (id_ for ids in steering.bad_word_ids for id_ in ids)),
        ("allowed_token_ids", steering.allowed_ids),
        ("logprob_token_ids", request.logprobs.token_ids),
    )
    for param, ids in named:
        for id_ in ids:
            if not 0 <= id_ < vocab_size:
                raise InvalidRequest(
                    f"`{param}` names the token {id_}, which this model does not have: its ids "
                    f"go from 0 to {vocab_size - 1}.",
                    param=param,
                )


def _first_logprobs_field(request: GenerationRequest) -> str | None:
    wish = request.logprobs
    if wish.num_top is not None:
        return "logprobs"
    return None if wish.num_top_of_prompt is None else "prompt_logprobs"
