"""The prompts of one model: its folder, tokenizer and chat templates together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.core.media import MAX_MEDIA_BYTES, MediaKind, MediaPart, decoded
from vinery_serving.core.request import Conversation, Encoding
from vinery_serving.prompting.capabilities import TemplateCapabilities
from vinery_serving.prompting.folder import ModelFolder
from vinery_serving.prompting.infill import Infill
from vinery_serving.prompting.pooling_folder import PoolingFolder
from vinery_serving.prompting.render import ChatRenderer, Rendered, marked_text, reasoning_settings
from vinery_serving.prompting.template import ChatTemplate, TemplateWords
from vinery_serving.prompting.tokenizer import Tokenizer, TokenizerFacts, load_tokenizer
from vinery_serving.prompting.vision import (
    MediaTokens,
    PromptMedia,
    VisionProcessor,
    WrongMedia,
    load_processor,
)

_TAIL_TOKENS = 16  # Enough of a prompt's last tokens to contain the opening tag
_WHOLE = Encoding()  # Keeps all tokens of a text

_NOT_AS_SENT = (
    "The model's chat template does not show the pictures of these messages as they were sent. "
    "Send them in messages of the user, and without the model's own picture tokens in any text."
)


@dataclass(frozen=True, slots=True)
class Prompt:
    token_ids: tuple[int, ...]  # never empty
    # The text of the ids; None when the client sent ids, or when some were cut off.
    text: str | None = None
    opens_reasoning: bool = False  # whether the prompt ends inside reasoning
    # The limit of the requested effort, in tokens; None: no limit.
    reasoning_budget: int | None = None
    end_ids: tuple[int, ...] = ()  # Tokens that end the answer beside the model's own end tokens
    # The pictures and clips, whose tokens are in `token_ids`. `text` shows each by its markup.
    media: tuple[PromptMedia, ...] = ()

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_media_tokens(self) -> int:
        return sum(each.num_tokens for each in self.media)


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    text: str
    words: TemplateWords
    capabilities: Mapping[str, Any]  # of `TemplateCapabilities`


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the files of a model's folder say, as plain data."""

    folder: ModelFolder
    tokenizer: TokenizerFacts
    templates: tuple[TemplateFacts, ...]
    vision: VisionProcessor | None
    pooling: PoolingFolder | None  # None: the model generates text

    def at(self, path: Path) -> Self:
        return replace(self, folder=replace(self.folder, path=path))


class ModelAssets:
    """Renders and encodes the prompts of one model. Safe to use from several threads."""

    # The usual tags around reasoning, replaced for a model with other tags. After a prompt that
    # ends with the first tag, the output begins inside the reasoning.
    reasoning_tags = ("<think>", "</think>")

    def __init__(
        self,
        folder: ModelFolder,
        tokenizer: Tokenizer,
        renderers: Sequence[ChatRenderer],
        vision: VisionProcessor | None = None,
        pooling: PoolingFolder | None = None,
    ) -> None:
        """`renderers`: none, one for all conversations, or two, the second for conversations with
        tools or calls. Raises `UnusableFolder` if the tokenizer does not fit `vision`."""
        self.folder, self.tokenizer = folder, tokenizer
        self.vision = vision  # None: the model takes text only
        self.pooling = pooling
        self._media_tokens = None if vision is None else MediaTokens.of(vision, tokenizer)
        self._renderers = renderers

    @classmethod
    def load(cls, path: Path | str, chat_template: str = "", *, generates: bool = True) -> Self:
        """Read the folder of a model. May take any time and memory, and runs the model's templates:
        only for processes that may be killed. Raises `UnusableFolder`."""
        folder = ModelFolder.read(path, chat_template)
        pooling = None if generates else PoolingFolder.read(folder)
        templates = folder.templates
        texts = [] if templates is None else [templates.default, templates.tools]
        vision = load_processor(folder)
        markup = None if vision is None else vision.markup
        renderers = [
            ChatRenderer(ChatTemplate(text, folder.named_tokens), markup)
            for text in texts
            if text is not None
        ]
        return cls(folder, load_tokenizer(folder), renderers, vision, pooling)

    @classmethod
    def of(cls, facts: ModelFacts, *, is_frugal: bool) -> Self:
        """Return what a process that may be killed has loaded. Reads only the tokenizer. With
        `is_frugal`, rendering and encoding may raise `OverBudget`, and a tokenizer that takes long
        to load only decodes. Raises `UnusableFolder`."""
        folder, vision = facts.folder, facts.vision
        markup = None if vision is None else vision.markup
        renderers = [
            ChatRenderer(
                ChatTemplate(
                    *(each.text, folder.named_tokens), words=each.words, is_frugal=is_frugal
                ),
                markup,
                TemplateCapabilities.known(each.capabilities),
            )
            for each in facts.templates
        ]
        tokenizer = load_tokenizer(folder, facts.tokenizer, is_frugal=is_frugal)
        return cls(folder, tokenizer, renderers, vision, facts.pooling)

    @cached_property
    def facts(self) -> ModelFacts:
        templates = tuple(
            TemplateFacts(each.template.text, each.template.words, each.capabilities.facts)
            for each in self._renderers
        )
        return ModelFacts(self.folder, self.tokenizer.facts, templates, self.vision, self.pooling)

    @property
    def template_text(self) -> str | None:
        """The chat template for requests with tools; None when there is none."""
        templates = self.folder.templates
        return None if templates is None else templates.tools or templates.default

    @property
    def takes_tools(self) -> bool:
        return bool(self._renderers) and self._renderers[-1].capabilities.has_tools

    def render(self, conversation: Conversation, encoding: Encoding = _WHOLE) -> Prompt:
        """Return the prompt of a chat. Raises `InvalidRequest` for a prompt that the model cannot
        render. Ignores a template that came with the request: see `render_untrusted`."""
        bare_budget = reasoning_settings(conversation.rendering.effort).budget
        if conversation.media:
            self._check_takes_media(conversation)
        if conversation.token_ids is not None:
            self.check_ids(conversation.token_ids, "prompt_token_ids")
            self._refuse_markup(conversation.token_ids, "prompt_token_ids")
            given = _cut(conversation.token_ids, None, encoding)
            opens_reasoning = self.opens_reasoning(given)
            return replace(given, opens_reasoning=opens_reasoning, reasoning_budget=bare_budget)
        if not conversation.rendering.uses_template:
            markup = None if self.vision is None else self.vision.markup
            text = "".join(marked_text(message, markup) for message in conversation.messages)
            bare = Rendered(text, bare_budget)
            return self.encode_rendered(bare, conversation, encoding, is_bare=True)
        if not self._renderers:
            raise InvalidRequest(
                "This model has no chat template, so it cannot chat. Use /completions with a "
                "prompt that you format yourself, or add a chat_template.jinja to its folder.",
                param="messages",
            )
        rendered = self._renderer(conversation).render(conversation)
        return self.encode_rendered(rendered, conversation, encoding)

    def encode_rendered(
        self,
        rendered: Rendered,
        conversation: Conversation,
        encoding: Encoding = _WHOLE,
        *,
        is_bare: bool = False,
    ) -> Prompt:
        """Return the prompt of a chat whose text is already rendered; `is_bare`: without a
        template. Raises `InvalidRequest`."""
        _check_text(rendered.text, "messages")
        if conversation.media:
            assert self.vision is not None
            markup = self.vision.markup
            text = rendered.text.replace(markup.image, markup.encoded_image)
            whole = replace(encoding, max_tokens=None)  # a cut could divide a picture
            prompt = self._encode(text, whole, is_bare=is_bare)
            prompt = self._with_media(prompt, conversation, encoding)
        else:
            prompt = self._encode(rendered.text, encoding, is_bare=is_bare)
            self._refuse_markup(prompt.token_ids, "messages")
        if not prompt.token_ids:
            raise InvalidRequest("The chat template rendered an empty prompt.", param="messages")
        return replace(
            prompt,
            opens_reasoning=self.opens_reasoning(prompt) or self._continues_reasoning(conversation),
            reasoning_budget=rendered.reasoning_budget,
        )

    def encode_prompt(
        self, prompt: str | Sequence[int], encoding: Encoding = _WHOLE, *, suffix: str | None = None
    ) -> Prompt:
        """Return the tokens of a raw prompt. With `suffix` the model fills in the text between
        the two. Raises `InvalidRequest`."""
        if suffix is not None:
            return self._infill_prompt(prompt, suffix, encoding)
        if isinstance(prompt, str):
            _check_text(prompt, "prompt")
            encoded = self._encode(prompt, encoding, is_bare=True)
        else:
            self.check_ids(prompt, "prompt")
            encoded = _cut(prompt, None, encoding)
        if not prompt or not encoded.token_ids:
            raise InvalidRequest("The prompt is empty: send at least one token.", param="prompt")
        self._refuse_markup(encoded.token_ids, "prompt")
        return encoded

    def text_of(self, prompt: Prompt) -> str:
        return self.tokenizer.decode(prompt.token_ids) if prompt.text is None else prompt.text

    def ids_of_text(self, text: str, encoding: Encoding = _WHOLE) -> Sequence[int]:
        """Return the tokens of a raw text; none for an empty text. Raises `InvalidRequest`."""
        _check_text(text, "prompt")
        return self._encode(text, encoding, is_bare=True).token_ids

    def text_of_ids(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens. Raises `InvalidRequest` for ids outside the vocabulary."""
        self.check_ids(token_ids, "tokens")
        return self.tokenizer.decode(token_ids)

    def check_ids(self, ids: Sequence[int], param: str) -> None:
        """Raises `InvalidRequest` about `param` for ids outside the vocabulary."""
        # The engine accepts any number, and then generates nonsense.
        vocab_size = self.tokenizer.facts.vocab_size
        wrong = next((id_ for id_ in ids if not 0 <= id_ < vocab_size), None)
        if wrong is not None:
            raise InvalidRequest(
                f"`{param}` names the token {wrong}, which this model does not have: its ids go "
                f"from 0 to {vocab_size - 1}.",
                param=param,
            )

    def _renderer(self, conversation: Conversation) -> ChatRenderer:
        has_tools = conversation.offers_tools or conversation.has_calls
        return self._renderers[-1 if has_tools else 0]

    def _check_takes_media(self, conversation: Conversation) -> None:
        first = conversation.media[0]
        if self.vision is None:
            raise InvalidRequest(
                "This model takes text only. Leave out the picture, video or file, or choose a "
                "model that takes pictures.",
                param=first.param,
            )
        if conversation.token_ids is not None or conversation.rendering.template is not None:
            given = "chat_template" if conversation.token_ids is None else "prompt_token_ids"
            raise InvalidRequest(
                f"Pictures cannot be sent together with `{given}`: leave out one of them.",
                param=given,
            )
        self._check_videos(conversation.media)
        num_bytes = 0
        for part in conversation.media:
            num_bytes += len(decoded(part).pixels)
            if num_bytes > MAX_MEDIA_BYTES:
                raise InvalidRequest(
                    "The pictures and videos of this request have too many pixels together: at "
                    f"most {MAX_MEDIA_BYTES // 3 // 10**6} million once they are scaled. Send "
                    'fewer, or with the `detail` "low".',
                    param=part.param,
                )

    def _check_videos(self, media: Sequence[MediaPart]) -> None:
        """Raises `InvalidRequest` for videos that the model does not take, or not there."""
        assert self.vision is not None
        has_picture = False
        for part in media:
            if part.kind is not MediaKind.VIDEO:
                has_picture = True
            elif not self.vision.takes_video:
                raise InvalidRequest(
                    "This model takes pictures, but no videos. Send single frames as pictures.",
                    param=part.param,
                )
            elif has_picture:
                raise InvalidRequest(
                    "Videos must come before the pictures of a request: the engine would take the "
                    "pictures for parts of the video.",
                    param=part.param,
                )

    def _with_media(self, prompt: Prompt, conversation: Conversation, encoding: Encoding) -> Prompt:
        assert self._media_tokens is not None
        try:
            token_ids, media = self._media_tokens.expand(
                prompt.token_ids, [decoded(part) for part in conversation.media]
            )
        except WrongMedia:
            raise InvalidRequest(_NOT_AS_SENT, param="messages") from None
        if encoding.max_tokens is not None and len(token_ids) > encoding.max_tokens:
            raise InvalidRequest(
                f"The prompt has {len(token_ids)} tokens with its pictures, and a prompt with "
                "pictures cannot be truncated. Send fewer or smaller pictures, or less text.",
                param="truncate_prompt_tokens",
            )
        return replace(prompt, token_ids=token_ids, media=media)

    def _refuse_markup(self, token_ids: Sequence[int], param: str) -> None:
        """Raises `InvalidRequest` for tokens that show a picture where there is none."""
        if self._media_tokens is None or not self._media_tokens.has_any(token_ids):
            return
        assert self.vision is not None
        raise InvalidRequest(
            f"The text must not have the tokens {', '.join(self.vision.markup.reserved)}, by "
            "which this model sees pictures. Send pictures as parts of a message.",
            param=param,
        )

    @cached_property
    def pad_id(self) -> int | None:
        """The token to pad with: the model's padding token, or its end token."""
        pad_token = self.folder.named_tokens.get("pad_token")
        pad_id = None if pad_token is None else self.tokenizer.token_id(pad_token)
        return min(self.tokenizer.facts.eos_ids, default=None) if pad_id is None else pad_id

    def opens_reasoning(self, prompt: Prompt) -> bool:
        text = prompt.text
        if text is None:
            text = self.tokenizer.decode(prompt.token_ids[-_TAIL_TOKENS:])
        return text.rstrip().endswith(self.reasoning_tags[0])

    def _continues_reasoning(self, conversation: Conversation) -> bool:
        """Whether the message that the model continues ends inside reasoning."""
        if not conversation.rendering.continues_final_message:
            return False
        last = conversation.messages[-1].text
        opening, end = self.reasoning_tags
        return last.rfind(opening) > last.rfind(end)

    def _infill_prompt(
        self, prefix: str | Sequence[int], suffix: str, encoding: Encoding
    ) -> Prompt:
        infill = self.infill
        if infill is None:
            raise UnsupportedParameter(
                "This model has no tokens for filling in the middle, so it cannot take a `suffix`. "
                "Leave it out, or choose a model for code that has such tokens.",
                param="suffix",
            )
        text = prefix if isinstance(prefix, str) else None
        _check_text(text or "", "prompt")
        _check_text(suffix, "suffix")
        encode = self.tokenizer.encode
        prefix_ids = encode(prefix) if isinstance(prefix, str) else prefix
        self.check_ids(prefix_ids, "prompt")
        suffix_ids = encode(suffix)
        before = () if encoding.adds_special_tokens is False else self._before_any_text
        num_others = len(before) + len(infill.token_ids((), suffix_ids))
        limit, num_least = encoding.max_tokens, num_others + min(1, len(prefix_ids))
        if limit is not None and num_least > limit:
            raise InvalidRequest(
                "The suffix leaves no tokens for the prompt: raise `truncate_prompt_tokens` or "
                "shorten the suffix.",
                param="truncate_prompt_tokens",
            )
        kept = _kept(prefix_ids, encoding, num_others)
        return Prompt(
            (*before, *infill.token_ids(kept, suffix_ids)),
            text if len(kept) == len(prefix_ids) else None,
            end_ids=infill.end_ids,
        )

    @cached_property
    def _before_any_text(self) -> Sequence[int]:
        """The tokens that the tokenizer puts before a text, such as BOS."""
        before, _ = _around(self.tokenizer.encode_raw("a"), self.tokenizer.encode("a"))
        return before

    @cached_property
    def infill(self) -> Infill | None:
        return Infill.of(self.tokenizer)

    def _encode(self, text: str, encoding: Encoding, *, is_bare: bool) -> Prompt:
        """Cutting keeps the special tokens that the tokenizer puts around the text."""
        adds = encoding.adds_special_tokens
        if not (is_bare if adds is None else adds):
            return _cut(self.tokenizer.encode(text), text, encoding)
        ids, limit = self.tokenizer.encode_raw(text), encoding.max_tokens
        if limit is not None and len(ids) > limit:
            plain = self.tokenizer.encode(text)
            before, after = _around(ids, plain)
            if (num_others := len(before) + len(after)) < limit:
                return Prompt((*before, *_kept(plain, encoding, num_others), *after))
        return _cut(ids, text, encoding)


def _cut(ids: Sequence[int], text: str | None, encoding: Encoding) -> Prompt:
    kept = _kept(ids, encoding)
    return Prompt(tuple(kept), text if len(kept) == len(ids) else None)


def _kept(ids: Sequence[int], encoding: Encoding, num_others: int = 0) -> Sequence[int]:
    """Return the ids that fit into the limit beside other tokens, of which there are fewer."""
    if encoding.max_tokens is None or len(ids) + num_others <= encoding.max_tokens:
        return ids
    limit = encoding.max_tokens - num_others
    return ids[:limit] if encoding.keeps_start else ids[-limit:]


def _around(ids: Sequence[int], plain: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    for start in range(len(ids) - len(plain) + 1):
        end = start + len(plain)
        if list(ids[start:end]) == list(plain):
            return ids[:start], ids[end:]
    return (), ()


def _check_text(text: str, param: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "The text has half of a surrogate pair, which is not a character.", param=param
        ) from error
