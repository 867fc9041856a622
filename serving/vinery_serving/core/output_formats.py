"""The names of output formats: how models write reasoning and tool calls.

A file in `grammars/families` has the family of each name in `CALL_FORMATS`.
"""

from typing import Final

PLAIN: Final = "plain"
REASONING_FORMATS: Final = (
    "think",
    "deepseek_r1",
    "granite_think",
    "mistral_think",
    "cohere_think",
    "hunyuan_think",
)
# A chat template is searched for the marks of these families in this order. If a family's templates
# contain the marks of another family, the former family comes first.
CALL_FORMATS: Final = (
    "onyx",
    "gptoss",
    "gemma4",
    "functiongemma",
    "cohere",
    "nemotron",
    "hunyuan",
    "lfm2",
    "minicpm5",
    "qwen3coder",
    "glm4",
    "llama3_pythonic",
    "llama4_pythonic",
    "deepseek_v3",
    "deepseek_v31",
    "kimi_k2",
    "phi4",
    "granite",
    "devstral",
    "mistral",
    "llama3",
    "hermes",
)
# The names that other model servers use.
_ALIASES: Final = {"none": PLAIN, "hermes3": "hermes", "qwen3": "think"}


def check_output_format(name: str) -> str:
    """Return the usual spelling of a name such as `hermes`, `think` or `think+hermes`. Raises
    ValueError, with the known names."""
    known = (PLAIN, *REASONING_FORMATS, *CALL_FORMATS)
    match [_ALIASES.get(part, part) for part in name.split("+")]:
        case [one] if one in known:
            return one
        case [reasoning, calls] if reasoning in REASONING_FORMATS and calls in CALL_FORMATS:
            return f"{reasoning}+{calls}"
    raise ValueError(
        f"There is no output format {name!r}. Known formats are {', '.join(sorted(known))}, and "
        "reasoning with calls such as think+hermes."
    )
