"""Reads the documents of the repository: their code blocks, links and headings."""

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from tests.conftest import REPOSITORY

DOCUMENTS = sorted(
    [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")]
    + list((REPOSITORY / "docs").rglob("*.md"))
)
GUIDES = sorted((REPOSITORY / "docs" / "guides").glob("*.md"))
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)
_COMMAND = re.compile(
    r"(?:^|[;&(]\s*|\bdo |\$\(|\bexec (?:-\w+ )?vinery(?:-0 --)? |/bin/)vinery (?=[a-z-])"
)


class Block(NamedTuple):
    language: str
    text: str


def blocks(document: Path) -> list[Block]:
    found = _FENCE.findall(document.read_text(encoding="utf-8"))
    return [
        Block(language, re.sub(rf"^{indent}", "", text, flags=re.M))
        for indent, language, text in found
    ]


def commands(document: Path) -> Iterator[list[str]]:
    """The words of each command `vinery ...` in the code blocks without another language."""
    for language, text in blocks(document):
        if language not in ("", "bash"):
            continue
        for line in text.replace("\\\n", " ").splitlines():
            for match in _COMMAND.finditer(line):
                yield list(takewhile(_is_word, _words(line[match.end() :])))


def _words(text: str) -> shlex.shlex:
    words = shlex.shlex(text, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    return words


def _is_word(word: str) -> bool:
    return not set(word) <= set("();<>|&")


def links(document: Path) -> set[str]:
    """The targets of links to files and headings."""
    text = _FENCE.sub("", document.read_text(encoding="utf-8"))
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return {each for each in found if not re.match(r"[a-z]+:", each)}


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub and the site give to the headings."""
    text = _FENCE.sub("", document.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
