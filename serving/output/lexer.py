"""The text that a parser has not read yet, cut at the tags that the parser waits for.

What a tag is depends on where the parser is (inside a JSON string nothing is), so each
read names the tags that count there. Half a tag at the end is held back.
"""

from __future__ import annotations

from serving.output.literals import Literals


class Tag:
    """One literal tag of a family's syntax."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.literals = Literals([text])


class Lexer:
    """Unread text."""

    def __init__(self) -> None:
        self.text = ""

    def feed(self, text: str) -> None:
        """More text has come."""
        self.text += text

    def take_all(self) -> str:
        """Everything that is left."""
        text, self.text = self.text, ""
        return text

    def skip_space(self) -> bool:
        """Drops white space; whether anything else follows."""
        self.text = self.text.lstrip()
        return bool(self.text)

    def take_until(self, tag: Tag) -> tuple[str, bool]:
        """The text before the tag, and whether the tag was there and is now taken too.

        Without the tag: all text that cannot be its beginning.
        """
        before, found, after = self.text.partition(tag.text)
        if found:
            self.text = after
            return before, True
        num_held = tag.literals.num_held(before)
        self.text = before[len(before) - num_held :]
        return before[: len(before) - num_held], False

    def take_space_and(self, tag: Tag) -> bool | None:
        """Whether white space and then the tag come next; both are taken if they do.

        None while more text must tell.
        """
        text = self.text.lstrip()
        if text.startswith(tag.text):
            self.text = text[len(tag.text) :]
            return True
        return None if tag.text.startswith(text) else False
