"""The fields of chat, responses and `/tokenize` that say how messages become a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from serving.core.errors import InvalidRequest
from serving.core.request import Effort, Rendering
from serving.protocols.fields import TemplateKwargs
from serving.protocols.reading import Wire

# Far above what fits into any context.
_MAX_DOCUMENTS = 1024
Documents = Annotated[list[dict[str, Any]], Field(max_length=_MAX_DOCUMENTS, fail_fast=True)]


class PromptFields(Wire):
    """How to render. What the template itself takes is known only where the model is."""

    chat_template: Annotated[str, Field(min_length=1)] | None = None
    chat_template_kwargs: TemplateKwargs | None = None
    disable_chat_template: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    documents: Documents | None = None

    @property
    def template_kwargs(self) -> Mapping[str, Any]:
        """Variables for the template."""
        return self.chat_template_kwargs or {}

    def rendering(self, effort: str | None = None) -> Rendering:
        """The wish in the inner form. Raises `InvalidRequest` for one that contradicts
        itself."""
        self._refuse_contradictions()
        continues = bool(self.continue_final_message)
        return Rendering(
            template=self.chat_template,
            uses_template=not self.disable_chat_template,
            documents=tuple(self.documents or ()),
            effort=None if effort is None else Effort(effort),
            adds_generation_prompt=not continues and self.add_generation_prompt is not False,
            continues_final_message=continues,
        )

    def _refuse_contradictions(self) -> None:
        if self.continue_final_message and self.add_generation_prompt:
            raise InvalidRequest(
                "`continue_final_message` and `add_generation_prompt` exclude each other: a "
                "prompt ends inside the last message or begins a new one.",
                param="continue_final_message",
            )
        for name in self._for_templates if self.disable_chat_template else ():
            raise InvalidRequest(
                f"`{name}` needs a chat template, but `disable_chat_template` is true.",
                param=name,
            )

    @property
    def _for_templates(self) -> list[str]:
        """The fields that were set and mean nothing without a template."""
        values = {
            "chat_template": self.chat_template,
            "continue_final_message": self.continue_final_message,
            "documents": self.documents,
        }
        return [name for name, value in values.items() if value]
