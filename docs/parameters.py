"""Renders `docs/parameters.md`: each parameter of four systems, and what it is here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from docs.answers import ANSWERS, Member
from docs.markdown import code, table
from docs.parts import PARTS, Part
from docs.systems import PARAMETERS, SYSTEMS
from serving.core.errors import InvalidRequest
from serving.core.request import V1, Endpoint
from serving.protocols import parse
from serving.protocols.openapi.document import BODIES
from serving.protocols.openapi.meanings import ECHOED, MEANINGS
from serving.protocols.openapi.schema import paths
from serving.protocols.refused import REFUSED, refusal
from serving.protocols.sse import json_bytes

_INTRODUCTION = """\
# Parameters

*Made from the code by `make docs`.*

Every parameter that OpenVINO Model Server, OpenAI, vLLM or FastDeploy document, and what
becomes of it here, on both URL trees: `/v1` has OpenAI's defaults, `/v3` OpenVINO Model
Server's, and where they differ the row says so. A parameter is

- **honoured**: it does what the row says,
- **accepted**: it changes nothing about what is generated, and is repeated where the answer
  has a place for it, or
- **refused**: with status 400, by name, for the reason in the row. Null, and values that ask
  for nothing special, are accepted.

✓ documented by that system, ~ in part or without effect, - not there. The same names, types
and limits are in the server's own OpenAPI document, at `/openapi.json`; wrong values and
their errors are in [errors.md](errors.md).
"""
# How the meaning of a member begins that its parser refuses.
_REFUSED = "Refused: "
_MARKS = {True: "✓", False: "~"}


def parameters_page() -> str:
    """The whole page."""
    return "\n".join(
        (
            _INTRODUCTION,
            *_endpoints(),
            "## Messages, their parts, and items of `input`\n",
            _parts(PARTS),
            *_answers(),
        )
    )


def _endpoints() -> Iterator[str]:
    for endpoint in Endpoint:
        rows = [
            (code(name), *_marks(systems), _answer(endpoint, name))
            for name, systems in PARAMETERS[endpoint].items()
            if _concerns(endpoint, name, systems)
        ]
        yield f"## {endpoint}\n"
        yield table(("parameter", *SYSTEMS.values(), "Vinery"), rows)


def _concerns(endpoint: Endpoint, name: str, systems: str) -> bool:
    """Whether somebody documents it here, or it is read here all the same."""
    return bool(systems) or is_read(endpoint, name)


def is_read(endpoint: Endpoint, name: str) -> bool:
    """Whether the parser knows the parameter of this path, and does not refuse it."""
    return name not in REFUSED[endpoint] and name in set(paths(BODIES[endpoint]))


def _answer(endpoint: Endpoint, name: str) -> str:
    if name in REFUSED[endpoint]:
        return f"**refused**: {refusal(endpoint, name)}"
    meaning = MEANINGS[name]
    if meaning.startswith(_REFUSED):
        return f"**refused**: {meaning.removeprefix(_REFUSED)}"
    state = "accepted" if name in ECHOED else "honoured"
    return f"**{state}**: {meaning}"


def _parts(parts: Iterable[Part]) -> str:
    rows = [(code(part.name), *_marks(part.systems), _meaning(part)) for part in parts]
    return table(("kind", *SYSTEMS.values(), "Vinery"), rows)


def _meaning(part: Part) -> str:
    if part.meaning is not None:
        return f"**honoured**: {part.meaning}"
    try:
        parse(part.endpoint, json_bytes(dict(part.fields)), V1)
    except InvalidRequest as error:
        return f"**refused**: {error.message}"
    raise ValueError(f"{part.name} is accepted: say what it means")


def _answers() -> Iterator[str]:
    for kind, members in ANSWERS.items():
        yield f"## The answer: {kind.__name__}\n"
        rows = [(code(each.path), *_marks(each.systems), _told(each)) for each in members]
        yield table(("member", *SYSTEMS.values(), "Vinery"), rows)


def _told(member: Member) -> str:
    return member.note if not member.is_told else f"✓ {member.note}".strip()


def _marks(systems: str) -> Iterator[str]:
    for letter in SYSTEMS:
        is_there = letter.lower() in systems.lower()
        yield _MARKS[letter in systems] if is_there else "-"
