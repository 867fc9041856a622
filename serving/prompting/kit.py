"""All that is needed to prompt one model: its folder, tokenizer and chat templates, joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from serving.core.errors import InvalidRequest
from serving.core.request import Conversation
from serving.prompting.folder import GenerationDefaults, ModelFolder
from serving.prompting.render import ChatRenderer
from serving.prompting.template import ChatTemplate
from serving.prompting.tokenizer import Tokenizer, load_tokenizer

# A prompt that ends with one of these lets the model begin inside a thought.
_THOUGHT_OPENINGS = ("<think>",)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the engine is given."""

    token_ids: tuple[int, ...]
    # What the ids were made of; None when the client sent ids.
    text: str | None = None
    opens_reasoning: bool = False

    @property
    def num_tokens(self) -> int:
        """Never 0."""
        return len(self.token_ids)


class ModelKit:
    """Makes the prompts of one model. Safe to use from several threads."""

    def __init__(
        self, folder: ModelFolder, tokenizer: Tokenizer, renderers: Sequence[ChatRenderer]
    ) -> None:
        """`renderers`: none, one, or one for plain requests and one for those with tools."""
        self.folder = folder
        self.tokenizer = tokenizer
        self._renderers = renderers

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Takes up to a few seconds: it reads vocabularies and tries the chat template.

        Raises `UnusableFolder`.
        """
        folder = ModelFolder.read(path)
        return cls(folder, load_tokenizer(folder), _renderers(folder))

    @property
    def defaults(self) -> GenerationDefaults:
        """How the model's authors sample."""
        return self.folder.defaults

    @property
    def max_context(self) -> int | None:
        """Tokens, prompt and output together. None: unknown."""
        return self.folder.max_context

    @property
    def template_text(self) -> str | None:
        """The chat template that requests with tools get; None when there is none."""
        if self.folder.templates is None:
            return None
        return self.folder.templates.tools or self.folder.templates.default

    def render(self, conversation: Conversation) -> Prompt:
        """The prompt of a chat. Raises `InvalidRequest` for what the model cannot take."""
        if not self._renderers:
            raise InvalidRequest(
                "This model has no chat template, so it cannot chat. Use /completions with a "
                "prompt of your own making, or give the model's folder a chat_template.jinja.",
                param="messages",
            )
        text = self._renderers[-1 if conversation.tools else 0].render(conversation)
        _check_text(text, "messages")
        ids = self.tokenizer.encode(text)
        if not ids:
            raise InvalidRequest("The chat template made an empty prompt.", param="messages")
        return Prompt(tuple(ids), text, text.rstrip().endswith(_THOUGHT_OPENINGS))

    def encode_prompt(self, prompt: str | Sequence[int]) -> Prompt:
        """A prompt that goes to the model as it is. Raises `InvalidRequest`."""
        ids = self._raw_ids(prompt) if prompt else ()
        if not ids:
            raise InvalidRequest("The prompt is empty: send at least one token.", param="prompt")
        return Prompt(tuple(ids), prompt if isinstance(prompt, str) else None)

    def _raw_ids(self, prompt: str | Sequence[int]) -> Sequence[int]:
        if isinstance(prompt, str):
            _check_text(prompt, "prompt")
            return self.tokenizer.encode_raw(prompt)
        self._check_ids(prompt)
        return prompt

    def _check_ids(self, ids: Sequence[int]) -> None:
        # The engine takes any number for a token, and answers nonsense.
        vocab_size = self.tokenizer.vocab_size
        wrong = next((id_ for id_ in ids if not 0 <= id_ < vocab_size), None)
        if wrong is not None:
            raise InvalidRequest(
                f"{wrong} is no token of this model: ids go from 0 to {vocab_size - 1}.",
                param="prompt",
            )


def _check_text(text: str, param: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "The text holds half of a surrogate pair, which is no character.", param=param
        ) from error


def _renderers(folder: ModelFolder) -> list[ChatRenderer]:
    templates = folder.templates
    if templates is None:
        return []
    texts = [text for text in (templates.default, templates.tools) if text is not None]
    return [ChatRenderer(ChatTemplate(text, folder.named_tokens)) for text in texts]
