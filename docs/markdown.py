"""The Markdown of the generated documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Pipes in cells are escaped."""
    lines = [_line(head), _line(["---"] * len(head)), *(_line(row) for row in rows)]
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    """Return `text` in backticks, also if it contains backticks."""
    fence = "``" if "`" in text else "`"
    space = " " if fence == "``" else ""
    return f"{fence}{space}{text}{space}{fence}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
