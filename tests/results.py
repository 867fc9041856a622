"""The whole answer that a list of events makes."""

from collections.abc import Iterable

from vinery_serving.core.events import Event
from vinery_serving.core.result import Result, ResultBuilder


def build_result(events: Iterable[Event]) -> Result:
    """Return the result of a finished stream. Raises the `ServingError` of a failed one."""
    builder = ResultBuilder()
    for event in events:
        builder.feed(event)
    return builder.result()
