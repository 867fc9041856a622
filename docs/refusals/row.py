"""One mistake in a body, and what the client is told: status 400, type `invalid_request_error`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

INVALID: Final = "invalid_value"
MISSING: Final = "missing_required_parameter"
UNSUPPORTED: Final = "unsupported_parameter"

# What several fields are told, and a value that several rows show.
CHOICES: Final = "must be none, auto, required or an object that names a tool"
CONTENT: Final = "must be a string or an array of content parts"
EFFORTS: Final = "must be one of 'none', 'minimal', 'low', 'medium', 'high', 'xhigh' or 'max'"
NO_AUDIO: Final = "holds audio input, but this model serves text only; send text parts"
NO_IMAGE: Final = "holds image input, but this model serves text only; send text parts"
ONE_KIND: Final = "must hold strings only, or token ids only: integers from 0"
ROLES: Final = "must be one of 'system', 'developer', 'user', 'assistant', 'tool' or 'function'"
NAMED_F: Final = {"type": "function", "name": "f"}
GBNF: Final = {"type": "grammar", "syntax": "gbnf", "definition": "a"}

_TREES: Final = ("v1", "v3")


@dataclass(frozen=True, slots=True)
class Row:
    """One mistake. The fields join, or replace, those of the least request there is."""

    param: str
    fields: Mapping[str, Any]
    code: str
    message: str
    trees: tuple[str, ...] = _TREES


def wrong(
    param: str, fields: Mapping[str, Any], sentence: str, trees: tuple[str, ...] = _TREES
) -> Row:
    """A field whose value is wrong. `sentence`: what follows its name in the message."""
    return Row(param, fields, INVALID, _message(param, sentence), trees)


def missing(param: str, fields: Mapping[str, Any], sentence: str = "is required") -> Row:
    """A field that must be there."""
    return Row(param, fields, MISSING, _message(param, sentence))


def unsupported(
    param: str, fields: Mapping[str, Any], sentence: str, trees: tuple[str, ...] = _TREES
) -> Row:
    """A field, or a value, that cannot be honoured here."""
    return Row(param, fields, UNSUPPORTED, _message(param, sentence), trees)


def _message(param: str, sentence: str) -> str:
    return f"`{param}` {sentence}."
