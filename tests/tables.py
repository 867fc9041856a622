"""A table of rows is one test: it tries each row, and fails with all rows that fail.

A parametrized test is collected, set up and reported for each row, which costs more than most rows
take. Rows that need a fixture of their own stay parametrized.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

Test = Callable[..., Any]

_MAX_SHOWN: Final = 5  # failures with their tracebacks
_FAILURES: Final = (Exception, BaseExceptionGroup, pytest.fail.Exception)


@dataclass(frozen=True)
class _Row:
    name: str | None
    values: dict[str, Any]

    def __str__(self) -> str:
        return self.name or ", ".join(repr(each)[:80] for each in self.values.values())


def table(names: str, rows: Iterable[Any]) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, in one test. Two tables on one test are their product.

    Rows are tuples, or single values for a single name; a `pytest.param` may give one an id. The
    test gets its fixtures once, for all rows.
    """
    fields = names.replace(",", " ").split()
    table_rows = [_row_of(fields, row) for row in rows]
    assert table_rows, "a table without rows proves nothing"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def each_row(*of_class: Any, **fixtures: Any) -> None:
            with _gathering(len(table_rows)) as failures:
                for row in table_rows:
                    with _trying(row, failures):
                        test(*of_class, **fixtures, **row.values)

        @functools.wraps(test)
        async def each_row_in_a_loop(*of_class: Any, **fixtures: Any) -> None:
            with _gathering(len(table_rows)) as failures:
                for row in table_rows:
                    with _trying(row, failures):
                        await test(*of_class, **fixtures, **row.values)

        loop = each_row_in_a_loop if inspect.iscoroutinefunction(test) else each_row
        # pytest reads from the signature which fixtures a test needs.
        signature = inspect.signature(test)
        kept = [each for each in signature.parameters.values() if each.name not in fields]
        loop.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return loop

    return decorate


def golden_errors(name: str) -> list[dict[str, Any]]:
    """The rows of a file of wrong requests and their errors, or of others."""
    path = Path(__file__).parent / "golden" / "errors" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _row_of(fields: list[str], row: Any) -> _Row:
    name = None
    if isinstance(row, type(pytest.param())):
        assert not row.marks, "a row of a table has no marks of its own"
        name, row = row.id, row.values if len(fields) > 1 else row.values[0]
    return _Row(name, dict(zip(fields, row if len(fields) > 1 else (row,), strict=True)))


@contextmanager
def _trying(row: _Row, failures: list[BaseException]) -> Iterator[None]:
    try:
        yield
    except _FAILURES as error:
        error.add_note(f"in the row: {row}")
        failures.append(error)


@contextmanager
def _gathering(num_rows: int) -> Iterator[list[BaseException]]:
    failures: list[BaseException] = []
    yield failures
    if failures:
        others = [note for each in failures[_MAX_SHOWN:] for note in each.__notes__]
        text = "\n".join([f"{len(failures)} of {num_rows} rows failed", *others])
        raise BaseExceptionGroup(text, failures[:_MAX_SHOWN])
