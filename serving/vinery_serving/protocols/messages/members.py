"""The members of turns, blocks and tools that take no effect.

Anthropic's API refuses members that it does not know, so its clients keep no data of their own in
messages, as OpenAI's do. What is left over here is worth a report.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from pydantic import ConfigDict

from vinery_serving.core.unused import Unused
from vinery_serving.protocols.common.reading import Wire
from vinery_serving.protocols.common.unknown_fields import unused_of


class Reported(Wire):
    """Base of the wire models whose other members are reported."""

    model_config = ConfigDict(extra="allow")

    # The members that Anthropic documents and that cannot change the answer. The prefix cache
    # finds equal starts of prompts itself.
    harmless: ClassVar[frozenset[str]] = frozenset({"cache_control"})
    # Whether the model gets nothing of it.
    is_left_out: ClassVar[bool] = False

    def others(self, path: str) -> Iterator[tuple[str, bool]]:
        """Yield the paths of the members that take no effect, also of those inside, and whether
        each is harmless."""
        if self.is_left_out:
            yield f"{path}.{getattr(self, 'type', '')}", True
        for name, value in (self.model_extra or {}).items():
            if value is not None:
                yield f"{path}.{name}", name in self.harmless
        for name in type(self).model_fields:
            yield from _others_in(getattr(self, name), f"{path}.{name}")


def unused_members(fields: Mapping[str, Sequence[Reported] | None]) -> Unused:
    """Return the members of these fields that take no effect: each name once, without indices."""
    found = dict(
        other for name, values in fields.items() for other in _others_in(values or (), name)
    )
    unknown = [name for name, is_harmless in found.items() if not is_harmless]
    return unused_of(unknown, [name for name, is_harmless in found.items() if is_harmless])


def _others_in(value: object, path: str) -> Iterator[tuple[str, bool]]:
    if isinstance(value, Reported):
        yield from value.others(path)
    elif isinstance(value, list):
        for each in value:
            yield from _others_in(each, path)
