"""Find words that the glossary retires: `python -m docs.words [PATH ...]`.

The last column of the glossary in ARCHITECTURE.md lists the retired words of each term. This
check reads every tracked text file, splits identifiers into their words, and prints each use
with its line. `docs/words_allowed.txt` lists the quotations that may stay.
Exit status 1 if a retired word is used.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
ALLOWED_FILE: Final = REPOSITORY / "docs" / "words_allowed.txt"
_GLOSSARY: Final = "## Glossary"
_ENDINGS: Final = {
    *(".py", ".md", ".html", ".txt", ".toml", ".yaml", ".css", ".js", ".sh", ".lua"),
    *("", ".cfg"),
}
# Model data, recorded bytes, and the two lists of the words themselves.
_LEFT_OUT: Final = (
    "models/*",
    "tests/golden/*",
    "tests/releases/*",
    "LICENSE",
    "ARCHITECTURE.md",
    "docs/words_allowed.txt",
)
# An identifier's words: `num_made`, `TokensGenerated` and `tokens-made` have the word `made`.
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True, slots=True)
class Allowed:
    """A quotation that may contain retired words, in files that match the pattern."""

    pattern: str
    quotation: str


@dataclass(frozen=True, slots=True)
class Use:
    """One retired word in a file. `line` counts from 1."""

    path: str
    line: int
    word: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r} in: {self.text.strip()[:100]}"


def retired_words(architecture: str) -> frozenset[str]:
    """Return the words in the last column of the glossary, in lower case.

    Raises ValueError if the text has no glossary.
    """
    _, found, rest = architecture.partition(_GLOSSARY)
    if not found:
        raise ValueError(f"ARCHITECTURE.md has no section {_GLOSSARY!r}")
    section = rest.partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    cells = [row.strip().strip("|").split("|")[-1] for row in rows]
    words = (word.strip().lower() for cell in cells for word in cell.split(","))
    return frozenset(word for word in words if word and word != "-")


def allowed_quotations(text: str) -> tuple[Allowed, ...]:
    """Read lines of the form `pattern | quotation`. Empty lines and comments are skipped."""
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    pairs = (line.split("|", 1) for line in lines)
    return tuple(Allowed(pattern.strip(), quotation.strip()) for pattern, quotation in pairs)


def uses_in(
    path: str, text: str, words: frozenset[str], allowed: Iterable[Allowed]
) -> Iterator[Use]:
    """Yield each use of a retired word in a file's text."""
    quotations = [each.quotation for each in allowed if fnmatch(path, each.pattern)]
    for number, line in enumerate(text.splitlines(), 1):
        rest = line
        for quotation in quotations:
            rest = rest.replace(quotation, "")
        for word in _WORD.findall(rest):
            if word.lower() in words:
                yield Use(path, number, word.lower(), line)


def tracked_files(paths: Iterable[str]) -> Iterator[str]:
    """Yield the tracked text files below the paths, or all of them if there are none."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *paths],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    for path in listed.stdout.splitlines():
        is_text = Path(path).suffix in _ENDINGS
        if is_text and not any(fnmatch(path, pattern) for pattern in _LEFT_OUT):
            yield path


def main(paths: list[str]) -> int:
    """Print each use. Returns the exit status."""
    words = retired_words((REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    allowed = allowed_quotations(ALLOWED_FILE.read_text(encoding="utf-8"))
    uses = [
        use
        for path in tracked_files(paths)
        if (REPOSITORY / path).is_file()
        for use in uses_in(path, (REPOSITORY / path).read_text(encoding="utf-8"), words, allowed)
    ]
    sys.stdout.writelines(f"{use}\n" for use in uses)
    if uses:
        sys.stdout.write(f"{len(uses)} uses of words that the glossary retires\n")
    return 1 if uses else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
