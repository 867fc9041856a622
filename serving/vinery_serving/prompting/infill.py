"""Fill in the middle: prompts of code models that generate the text between prefix and suffix.

The markers in a model's vocabulary identify its family. The texts are encoded separately from the
markers, so that no tokenizer merges them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vinery_serving.prompting.tokenizer import Tokenizer

# The positions of the two texts between the markers.
_PREFIX: Final = "{prefix}"
_SUFFIX: Final = "{suffix}"


@dataclass(frozen=True, slots=True)
class _Family:
    """Markers and texts in their order, and the tokens that end the output beside EOS."""

    layout: tuple[str, ...]
    ends: tuple[str, ...] = ()


_FAMILIES: Final = (
    # Qwen Coder, CodeGemma, Granite 4
    _Family(
        ("<|fim_prefix|>", _PREFIX, "<|fim_suffix|>", _SUFFIX, "<|fim_middle|>"),
        ("<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|file_separator|>"),
    ),
    # StarCoder, Granite 3, Stable Code
    _Family(
        ("<fim_prefix>", _PREFIX, "<fim_suffix>", _SUFFIX, "<fim_middle>"),
        ("<|endoftext|>", "<file_sep>", "<repo_name>"),
    ),
    # SantaCoder
    _Family(("<fim-prefix>", _PREFIX, "<fim-suffix>", _SUFFIX, "<fim-middle>"), ("<|endoftext|>",)),
    # Code Llama, whose tokens begin with SentencePiece's space
    _Family(("▁<PRE>", _PREFIX, "▁<SUF>", _SUFFIX, "▁<MID>"), ("▁<EOT>",)),
    _Family(("<PRE>", _PREFIX, "<SUF>", _SUFFIX, "<MID>"), ("<EOT>",)),
    # DeepSeek Coder, whose bars are full-width
    _Family(("<｜fim▁begin｜>", _PREFIX, "<｜fim▁hole｜>", _SUFFIX, "<｜fim▁end｜>")),
    _Family(("[SUFFIX]", _SUFFIX, "[PREFIX]", _PREFIX)),  # Codestral
    _Family(("<[fim-suffix]>", _SUFFIX, "<[fim-prefix]>", _PREFIX, "<[fim-middle]>")),  # Seed Coder
    # GLM 4, CodeGeeX
    _Family(
        ("<|code_prefix|>", _PREFIX, "<|code_suffix|>", _SUFFIX, "<|code_middle|>"),
        ("<|endoftext|>",),
    ),
)


@dataclass(frozen=True, slots=True)
class Infill:
    """The layout of one model's prompts. `end_ids` end the output."""

    layout: tuple[str | int, ...]
    end_ids: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Infill | None:
        """Return the layout for this tokenizer; None when it has no such tokens."""
        for family in _FAMILIES:
            layout = [
                part if part in (_PREFIX, _SUFFIX) else tokenizer.token_id(part)
                for part in family.layout
            ]
            known = tuple(part for part in layout if part is not None)
            if len(known) == len(layout):
                ends = (tokenizer.token_id(end) for end in family.ends)
                return cls(known, tuple(end for end in ends if end is not None))
        return None

    def token_ids(self, prefix: Sequence[int], suffix: Sequence[int]) -> list[int]:
        texts = {_PREFIX: prefix, _SUFFIX: suffix}
        parts = ([part] if isinstance(part, int) else texts[part] for part in self.layout)
        return [id_ for part in parts for id_ in part]
