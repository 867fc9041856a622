"""The step budget of a translation.

A client decides how large its schemas, patterns and grammars are, and how much work their
translation is. Loops over them spend steps, and a translation that has none left is refused.
Steps are counted instead of time, so that the same request has the same answer on any machine.

The budget belongs to the context, because expressions of a grammar have no room for one. Without a
budget nothing is counted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from vinery_serving.core.errors import GrammarTooLarge
from vinery_serving.core.field_limits import REQUEST_STEPS, SCHEMA_CHARS, SCHEMA_STEPS, FieldLimit

T = TypeVar("T")


class OutOfSteps(Exception):
    """The translation takes more steps than its budget has. The message is the reason."""

    def __init__(self, limit: FieldLimit) -> None:
        what = "it takes" if limit is SCHEMA_STEPS else "those of the request take"
        super().__init__(
            f"{what} more than {limit.value} steps of translation. Use fewer or smaller options, "
            f"properties, patterns and bounds, or ask the administrator to raise {limit.setting}"
        )


@dataclass(slots=True)
class StepBudget:
    """The steps that may be spent, and how many were. `source`: where the limit comes from."""

    limit: int
    source: FieldLimit
    num_spent: int = 0


_open: Final[ContextVar[StepBudget | None]] = ContextVar("step_budget", default=None)


def spend(num_steps: int = 1) -> None:
    """Take steps from the open budget before the work. Raises `OutOfSteps`."""
    budget = _open.get()
    if budget is not None:
        budget.num_spent += num_steps
        if budget.num_spent > budget.limit:
            raise OutOfSteps(budget.source)


@contextmanager
def step_budget(limit: FieldLimit = REQUEST_STEPS) -> Iterator[StepBudget]:
    """Join the open budget, or open a new one with this limit."""
    budget = _open.get()
    if budget is not None:
        yield budget
        return
    with _opened(StepBudget(limit.value, limit)) as budget:
        yield budget


@contextmanager
def named_budget(param: str, source: str = "") -> Iterator[None]:
    """Join the open budget or open a new one, for the request field `param`. Raises
    `GrammarTooLarge` with the field if the steps do not suffice, or for too long a source."""
    if len(source) > SCHEMA_CHARS.value:
        raise GrammarTooLarge(f"`{param}` {SCHEMA_CHARS.sentence(len(source))}.", param=param)
    try:
        with step_budget():
            yield
    except OutOfSteps as error:
        raise GrammarTooLarge(f"`{param}` is too large: {error}.", param=param) from None


@contextmanager
def _opened(budget: StepBudget) -> Iterator[StepBudget]:
    token = _open.set(budget)
    try:
        yield budget
    finally:
        _open.reset(token)


@dataclass(frozen=True, slots=True)
class Counted(Generic[T]):
    """A result, and the steps that it took."""

    value: T
    num_steps: int


def counted(work: Callable[[], T]) -> Counted[T]:
    """Return the result of translating one schema, pattern or grammar, for a cache: `result_of`
    spends its steps. Raises `OutOfSteps` if the open budget has not as many."""
    budget, outer = StepBudget(SCHEMA_STEPS.value, SCHEMA_STEPS), _open.get()
    if outer is not None and (num_left := outer.limit - outer.num_spent) < budget.limit:
        budget = StepBudget(num_left, outer.source)
    with _opened(budget):
        return Counted(work(), budget.num_spent)


def result_of(found: Counted[T]) -> T:
    """Return a result after its steps were spent, so that a request has the same answer whether
    its schemas are in a cache or not. Raises `OutOfSteps`."""
    spend(found.num_steps)
    return found.value
