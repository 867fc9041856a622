"""Calls in reasoning are held back: drafts, which stay reasoning if other text or the closing tag
follows, and calls if the output ends with them."""

from collections.abc import Callable, Sequence
from functools import partial

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import Lexer, Parser, Reading
from vinery_serving.output.writer import EventWriter


class DraftedReasoning(Parser):
    """Passes on reasoning to `write`. `read` finds the calls in it."""

    def __init__(
        self,
        read: Callable[[Lexer, EventWriter, Sequence[Tool]], Reading[None]],
        writer: EventWriter,
        tools: Sequence[Tool],
        write: Callable[[str], None],
    ) -> None:
        self._write = write
        self._raw: list[str] = []  # not passed on
        self._draft = Draft(writer, before_call=self._pass_on)
        super().__init__(lambda lexer: read(lexer, self._draft, tools), is_reasoning=True)

    def feed(self, text: str) -> None:
        self._raw.append(text)
        super().feed(text)
        if not self._draft.calls:
            self._pass_on()

    def close(self) -> None:
        self._write("".join(self._raw))

    def finish(self, *, is_closed: bool = False) -> None:
        super().finish(is_closed=is_closed)
        if self._draft.has_whole_call or (is_closed and self._draft.calls):
            self._draft.commit()
        else:
            self.close()

    def _pass_on(self) -> None:
        """Pass on the text that cannot become a call."""
        text = "".join(self._raw)
        num_undecided = len(self.text) - (self.at if self.mark is None else self.mark)
        sure = len(text) - num_undecided
        self._write(text[:sure])
        self._raw = [text[sure:]]


class Draft(EventWriter):
    """Keeps the calls since the last text until `commit` writes them to `writer`. `before_call` is
    called before the first call."""

    def __init__(
        self, writer: EventWriter, *, before_call: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(writer.choice, new_call_id=str)
        self._writer = writer
        self._before_call = before_call
        self.has_text = True  # the reasoning
        self.calls: list[Callable[[], None]] = []

    @property
    def has_whole_call(self) -> bool:
        return self._writer.end_call in self.calls

    def commit(self) -> None:
        for write in self.calls:
            write()

    def text(self, text: str) -> None:
        self.calls.clear()

    def start_call(self, name: str) -> None:
        if not self.calls:
            self._before_call()
        self.num_calls += 1
        self.calls.append(partial(self._writer.start_call, name))

    def arguments(self, text: str) -> None:
        self.calls.append(partial(self._writer.arguments, text))

    def end_call(self) -> None:
        self.calls.append(self._writer.end_call)
