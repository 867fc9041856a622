"""The fields of a body that no model has, also inside other fields.

OpenAI's clients keep data of their own in messages, items and tools. So what is unknown in the
entries of lists is named, but never refused. The members of Anthropic's messages are searched in
`protocols/messages/members.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final

from pydantic import BaseModel

from vinery_serving.core.unused import NOTHING_UNUSED, Unused
from vinery_serving.protocols.common.tools import HostedTool

# The members that choose a model.
_TAGS: Final = frozenset(("type", "role"))
# Unknown names that are kept, and of each so many characters.
_MAX_NAMES: Final = 32
_MAX_NAME_CHARS: Final = 128


def unused_of(unknown: Iterable[str], harmless: Iterable[str] = ()) -> Unused:
    """Return the report on the names of unknown and harmless fields."""
    names = list(unknown)
    unused = Unused(_few(names), len(names), _few(harmless))
    return unused if unused != NOTHING_UNUSED else NOTHING_UNUSED


def unused_fields(unknown: Mapping[str, bool], harmless: Iterable[str] = ()) -> Unused:
    """Return the report on `unknown_fields` and others that are harmless."""
    kept = [path for path, is_in_list in unknown.items() if is_in_list]
    return unused_of((path for path in unknown if not unknown[path]), (*harmless, *kept))


def _few(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name[:_MAX_NAME_CHARS] for name in islice(names, _MAX_NAMES))


def unknown_fields(wire: BaseModel, members: Mapping[str, Any]) -> dict[str, bool]:
    """Return the paths of all members that the models in `wire` do not have, without indices.

    `members` became `wire`. True: the member is in an entry of a list.
    """
    return dict(_unknown_in(wire, members, ""))


def _unknown_in(
    value: object, sent: object, path: str, *, is_in_list: bool = False
) -> Iterator[tuple[str, bool]]:
    if isinstance(value, list | tuple) and isinstance(sent, list):
        for each, one in zip(value, sent, strict=False):
            yield from _unknown_in(each, one, path, is_in_list=True)
    elif isinstance(value, BaseModel) and isinstance(sent, dict) and not _is_open(value):
        known = known_fields(type(value))
        for name, member in sent.items():
            inner = f"{path}.{name}" if path else name
            if name in known:
                own = getattr(value, known[name])
                yield from _unknown_in(own, member, inner, is_in_list=is_in_list)
            elif member is not None and name not in _TAGS:
                yield inner, is_in_list


def _is_open(value: BaseModel) -> bool:
    """Whether others know the members: those of Anthropic's messages are reported elsewhere, tags
    are checked by the grammar compiler, and OpenAI's hosted tools are reported as a whole."""
    is_tag = getattr(value, "tag", None) is not None
    return is_tag or isinstance(value, HostedTool) or value.model_config.get("extra") == "allow"


@cache
def known_fields(model: type[BaseModel]) -> Mapping[str, str]:
    """The names of the fields, by those that clients send."""
    return {field.alias or name: name for name, field in model.model_fields.items()}
