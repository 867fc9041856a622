"""Reports in headers of the answer what of a request took no effect, or less than was asked for.

A client chooses the names of fields. So the header has only short names of plain characters, at
most sixteen of them, and the number of all others; and the metric has only the names of a table.
"""

import re
from collections.abc import Iterable
from typing import Final

from django.conf import settings

from vinery_serving.core.errors import UnknownParameter, UnsupportedParameter
from vinery_serving.core.request import Unused
from vinery_serving.gateway.endpoints.edge import OWN_HEADERS, Headers, Scope, header
from vinery_serving.gateway.state.traffic import Traffic
from vinery_serving.protocols.common.body_fields import FOREIGN, Harmless

IGNORED: Final = b"x-vinery-ignored"
CLAMPED: Final = b"x-vinery-clamped"
_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]{1,64}\Z")
_MAX_NAMES: Final = 16
# OpenAI's names of hosted tools, and of tools that only OpenAI's clients know.
_HOSTED_TOOLS: Final = (
    "web_search", "web_search_preview", "file_search", "code_interpreter", "image_generation",
    "mcp", "computer_use_preview", "local_shell", "shell", "apply_patch", "tool_search",
)  # fmt: skip
_OTHER: Final = "other"
# In this header Anthropic's clients name the features to use, as fields of the body do again.
_BETAS: Final = "anthropic-beta"
_LABELS: Final = frozenset(
    {"store", "model", _BETAS}
    | {f"tools.{kind}" for kind in _HOSTED_TOOLS}
    | {each.name for each in FOREIGN.values() if isinstance(each.fate, Harmless)}
)


def report_unused(unused: Unused, scope: Scope, traffic: Traffic, *others: str) -> None:
    """Add the header to the answers of this request, and count the fields; `others` are names of
    further fields. Raises `InvalidRequest` where the settings demand a refusal."""
    betas = () if header(scope, _BETAS.encode()) is None else (_BETAS,)
    names = (*others, *betas, *unused.hosted, *unused.harmless, *unused.unknown)
    if not names:
        return
    num_names = len(names) - len(unused.unknown) + unused.num_unknown
    headers: Headers = scope[OWN_HEADERS]
    headers.append((IGNORED, ignored(names, num_names)))
    for label in {name if name in _LABELS else _OTHER for name in names}:
        traffic.ignored[label] += 1
    _refuse(unused)


def report_unenforced(fields: str, scope: Scope, traffic: Traffic) -> None:
    if fields:
        scope[OWN_HEADERS].append((IGNORED, fields.encode("ascii")))
        traffic.ignored[_OTHER] += 1


def report_clamp(param: str, max_tokens: int | None, scope: Scope) -> None:
    """Add the header with the limit of output tokens, if it is less than the client asked for."""
    if max_tokens is not None:
        scope[OWN_HEADERS].append((CLAMPED, f"{param}={max_tokens}".encode("ascii")))


def ignored(names: Iterable[str], num_names: int) -> bytes:
    """Return the value of the header: `a, b, +3 more`."""
    listed = [name for name in names if _NAME.match(name)][:_MAX_NAMES]
    if num_names > len(listed):
        listed.append(f"+{num_names - len(listed)} more")
    return ", ".join(listed).encode("ascii")


def _refuse(unused: Unused) -> None:
    if unused.unknown and settings.VINERY_UNKNOWN_FIELDS == "refuse":
        name = unused.unknown[0]
        raise UnknownParameter(
            f"`{name}` is not a parameter of this endpoint. Leave it out, or ask the administrator "
            "to set VINERY_UNKNOWN_FIELDS to ignore.",
            param=name,
        )
    if unused.hosted and settings.VINERY_HOSTED_FEATURES == "refuse":
        name = unused.hosted[0]
        raise UnsupportedParameter(
            f"`{name}` asks for a feature of OpenAI's service that this server does not have. "
            "Leave it out, or ask the administrator to set VINERY_HOSTED_FEATURES to ignore.",
            param=name,
        )
