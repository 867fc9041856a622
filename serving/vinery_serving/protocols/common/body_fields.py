"""From the fields of a body to those of its endpoint: none is dropped without a trace.

A field is one of the endpoint's own, or refused, or that of another server (see `foreign`), or
unknown. Unknown ones are ignored, as clients expect, and reported.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple

from pydantic import BaseModel

from vinery_serving.core.dialects import Dialect
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.request import Endpoint
from vinery_serving.core.unused import Unused
from vinery_serving.protocols.common.aliases import SYNONYMS, Alias
from vinery_serving.protocols.common.foreign import FOREIGN_BY_NAME, Harmless
from vinery_serving.protocols.common.numbers import with_numbers
from vinery_serving.protocols.common.reading import WireT, read_model, read_object, refusal
from vinery_serving.protocols.common.refused import REFUSED, Refused
from vinery_serving.protocols.common.unknown_fields import (
    known_fields,
    unknown_fields,
    unused_fields,
)

_END_OF_NAME: Final = re.compile(r"[.\[]")


class Body(NamedTuple, Generic[WireT]):
    """A body, and what of it takes no effect."""

    wire: WireT
    unused: Unused


def read_body(endpoint: Endpoint, model: type[WireT], body: bytes, dialect: Dialect) -> Body[WireT]:
    """Read a body as `model`. Raises `UnsupportedParameter` for the first refused parameter,
    then `InvalidRequest` for the first error."""
    fields = _Fields(endpoint, model)
    fields.take(read_object(body))
    fields.put_aliases()
    members = with_numbers(model, fields.members, dialect)
    try:
        wire = read_model(model, members)
    except InvalidRequest as error:
        raise fields.renamed(error) from None
    own = {name: value for name, value in members.items() if name in known_fields(model)}
    unknown = dict.fromkeys(fields.unknown, False) | unknown_fields(wire, own)
    return Body(wire, unused_fields(unknown, fields.harmless))


@dataclass(slots=True)
class _Fields:
    """Collects the fields of one body."""

    endpoint: Endpoint
    model: type[BaseModel]
    members: dict[str, Any] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    harmless: list[str] = field(default_factory=list)
    aliases: list[tuple[str, Any, Alias]] = field(default_factory=list)
    # The names that the client sent, by the names of the fields that they became.
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
        foreign = FOREIGN_BY_NAME.get(name)
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
        """Put the fields of all aliases. Raises `InvalidRequest` if one of them is there already,
        with another value."""
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
            if known is not None and not _are_equal(known, value):
                other = self.origins.get(name, name)
                raise refusal(sent, f"contradicts `{other}`. Send one of them")

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
        """Return an error about the client's own name of a field."""
        param = error.param or ""
        name = _END_OF_NAME.split(param)[0]
        if name not in self.origins:
            return error
        path = self.origins[name] + param.removeprefix(name)
        return type(error)(error.message.replace(f"`{param}`", f"`{path}`", 1), param=path)


def _are_equal(value: object, other: object) -> bool:
    """As in JSON, false is not 0."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)
