"""Reads the fields of a body. No field is dropped without a trace.

A field belongs to the endpoint, is refused, belongs to another server (see `foreign`), or is
unknown. Unknown fields are ignored, as clients expect, and reported. OpenAI's clients keep data of
their own in messages, items and tools, so unknown members of list entries are never refused.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, Final, Generic, NamedTuple

from pydantic import BaseModel

from vinery_serving.core.dialects import V1, Dialect
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.request import NOTHING_UNUSED, Unused
from vinery_serving.core.tasks import Endpoint
from vinery_serving.protocols.common import reading
from vinery_serving.protocols.common.foreign import FOREIGN_BY_NAME, SYNONYMS, Alias, Harmless
from vinery_serving.protocols.common.generation import GenerationBody
from vinery_serving.protocols.common.refused import REFUSED, Refused, are_equal
from vinery_serving.protocols.common.tools import HostedTool

_END_OF_NAME: Final = re.compile(r"[.\[]")


class Body(NamedTuple, Generic[reading.WireT]):
    """A body, and the fields without effect."""

    wire: reading.WireT
    unused: Unused


def read_body(
    endpoint: Endpoint, model: type[reading.WireT], body: bytes, dialect: Dialect = V1
) -> Body[reading.WireT]:
    """Read a body as `model`. Raises `UnsupportedParameter` for the first refused parameter,
    then `InvalidRequest` for the first error."""
    fields = _Fields(endpoint, model)
    fields.take(reading.read_object(body))
    fields.put_aliases()
    members = reading.with_numbers(model, fields.members, dialect)
    try:
        wire = reading.read_model(model, members)
    except InvalidRequest as error:
        raise fields.renamed(error) from None
    own = {name: value for name, value in members.items() if name in known_fields(model)}
    unknown = dict.fromkeys(fields.unknown, False) | unknown_fields(wire, own)
    return Body(wire, unused_fields(unknown, fields.harmless))


@dataclass(slots=True)
class _Fields:
    endpoint: Endpoint
    model: type[BaseModel]
    members: dict[str, Any] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    harmless: list[str] = field(default_factory=list)
    aliases: list[tuple[str, Any, Alias]] = field(default_factory=list)
    # The client's names of aliased fields, by this server's names.
    origins: dict[str, str] = field(default_factory=dict)

    def take(self, body: Mapping[str, Any]) -> None:
        """Take all fields. Aliases wait for `put_aliases`. Raises `InvalidRequest`."""
        own, refused = known_fields(self.model), REFUSED[self.endpoint]
        for name, value in body.items():
            if name in refused:
                refused[name].check(name, value)
            if name in own or name in refused:
                self.members[name] = value
            elif value is not None:
                self._take_foreign(name, value)

    def _take_foreign(self, name: str, value: Any) -> None:
        generates = issubclass(self.model, GenerationBody)
        foreign = FOREIGN_BY_NAME.get(name) if generates else None
        match None if foreign is None else foreign.fate:
            case Alias() as alias:
                self.aliases.append((name, value, alias))
            case Refused() as refused:
                refused.check(name, value)
            case Harmless():
                self.harmless.append(name)
            case None:
                self.unknown.append(name)

    def put_aliases(self) -> None:
        """Raises `InvalidRequest` for an alias that contradicts a field of the body."""
        for sent, given, alias in self.aliases:
            for path, value in alias.read(self.endpoint, sent, given).items():
                refused = REFUSED[self.endpoint].get(path)
                if refused is not None:
                    refused.check(sent, given)
                self._refuse_other_value(sent, path, value)
                self._set(path, value)
                self.origins[path] = sent

    def _refuse_other_value(self, sent: str, path: str, value: Any) -> None:
        for name in SYNONYMS.get(path, (path,)):
            known = self._get(name)
            if known is not None and not are_equal(known, value):
                other = self.origins.get(name, name)
                raise reading.refusal(sent, f"contradicts `{other}`. Send one of them")

    def _get(self, path: str) -> Any:
        name, _, member = path.partition(".")
        value = self.members.get(name)
        return value.get(member) if member and isinstance(value, dict) else value

    def _set(self, path: str, value: Any) -> None:
        name, _, member = path.partition(".")
        known = self.members.get(name)
        if not member:
            self.members[name] = value
        elif known is None or isinstance(known, dict):  # other values are refused later
            self.members[name] = {**(known or {}), member: value}

    def renamed(self, error: InvalidRequest) -> InvalidRequest:
        """Return the error with the client's name of the field."""
        param = error.param or ""
        name = _END_OF_NAME.split(param)[0]
        if name not in self.origins:
            return error
        path = self.origins[name] + param.removeprefix(name)
        return type(error)(error.message.replace(f"`{param}`", f"`{path}`", 1), param=path)


_TAGS: Final = frozenset(("type", "role"))  # the members that choose a model
# The most unknown names in a report, and the most characters of a name.
_MAX_NAMES: Final = 32
_MAX_NAME_CHARS: Final = 128


def unused_fields(unknown: Mapping[str, bool], harmless: Iterable[str] = ()) -> Unused:
    """Return the report on `unknown_fields` and others that are harmless."""
    names = [path for path, is_harmless in unknown.items() if not is_harmless]
    kept = (path for path, is_harmless in unknown.items() if is_harmless)
    unused = Unused(_shortened(names), len(names), _shortened((*harmless, *kept)))
    return unused if unused != NOTHING_UNUSED else NOTHING_UNUSED


def _shortened(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name[:_MAX_NAME_CHARS] for name in islice(names, _MAX_NAMES))


def unknown_fields(wire: BaseModel, members: Mapping[str, Any]) -> dict[str, bool]:
    """Return the paths of all members that the models in `wire` do not have, without indices.
    `members` was read as `wire`. True: the member is harmless, as in the entries of a list."""
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
                if isinstance(member, dict | list):
                    own = getattr(value, known[name])
                    yield from _unknown_in(own, member, inner, is_in_list=is_in_list)
            elif member is not None and name not in _TAGS:
                yield inner, is_in_list


def _is_open(value: BaseModel) -> bool:
    """Whether any member may be there: the grammar compiler checks tags, and OpenAI's hosted
    tools are reported as a whole."""
    # The search for an attribute that a model of Pydantic does not have is slow.
    has_tag = "tag" in known_fields(type(value)) and getattr(value, "tag", None) is not None
    return has_tag or isinstance(value, HostedTool)


@cache
def known_fields(model: type[BaseModel]) -> Mapping[str, str]:
    """The names of the fields, by the clients' names."""
    return {field.alias or name: name for name, field in model.model_fields.items()}
