"""The one table of what is wrong in a body, and what a client is told then.

A row is the path of the field, a body that has it wrong, and what is said of it. Every row is
tested on both URL trees, and `docs/errors.md` shows them all. What needs more than a body is
in `docs.failures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from docs.refusals import chat, completions, responses
from docs.refusals.accepted import ACCEPTED
from docs.refusals.everywhere import EVERYWHERE
from docs.refusals.row import INVALID, UNSUPPORTED, Row
from serving.core.request import Endpoint

__all__ = ["ACCEPTED", "EVERYWHERE", "INVALID", "ONE_BY_ONE", "UNSUPPORTED", "Row"]

# What one endpoint refuses, in the order of the document.
ONE_BY_ONE: Mapping[Endpoint, Sequence[Row]] = {
    Endpoint.CHAT: chat.ROWS,
    Endpoint.COMPLETIONS: completions.ROWS,
    Endpoint.RESPONSES: responses.ROWS,
}
