"""The shared parts of parsers: the family, text with tool calls, and reasoning before the answer.

Any `ReasoningTags` go with any family of answers. Many templates open the reasoning in the prompt,
so that the output begins inside it. White space around reasoning belongs to the syntax. Without a
closing tag all text is reasoning, except calls at its end (see `drafts`). Tags after the first pair
are text: an answer may mention them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import EndOfText, Lexer, Parser, Reading, Tag, UnexpectedText
from vinery_serving.output.parsers.drafts import DraftedReasoning
from vinery_serving.output.writer import EventWriter


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """How a family marks reasoning. The first spelling of a tag is the usual one."""

    open: Tag
    close: Tag
    # Syntax that always follows `close`, also where a budget ends the reasoning.
    after_close: str = ""
    gap: str = ""  # white space that models of this family write between reasoning and answer
    # The output begins with reasoning, even where the prompt does not open it.
    starts_open: bool = False
    answer_tags: tuple[Tag, Tag] | None = None  # the tags around an answer that follows reasoning

    @property
    def closing(self) -> str:
        return self.close.text + self.after_close


# Qwen3, Phi-4-reasoning and many others.
THINK = ReasoningTags(Tag("<think>"), Tag("</think>"), gap="\n\n")
# The first templates of R1 do not open the reasoning, and nor does the model.
DEEPSEEK_R1 = ReasoningTags(THINK.open, THINK.close, gap="\n\n", starts_open=True)
MISTRAL_THINK = ReasoningTags(Tag("[THINK]"), Tag("[/THINK]"))
# Granite 3.2 writes sentences, Granite 3.3 tags, also around the answer.
GRANITE_THINK = ReasoningTags(
    Tag("Here is my thought process:", "Here's my thought process:", THINK.open.text),
    Tag("Here is my response:", "Here's my response:", THINK.close.text),
    gap="\n",
    answer_tags=(Tag("<response>"), Tag("</response>")),
)
# Hunyuan, and Cohere's Command models.
HUNYUAN_THINK = ReasoningTags(
    THINK.open, THINK.close, gap="\n", answer_tags=(Tag("<answer>"), Tag("</answer>"))
)
COHERE_THINK = ReasoningTags(
    Tag("<|START_THINKING|>"),
    Tag("<|END_THINKING|>"),
    answer_tags=(
        Tag("<|START_RESPONSE|>", "<|START_TEXT|>"),
        Tag("<|END_RESPONSE|>", "<|END_TEXT|>"),
    ),
)


# Reads a whole output. Without tools no text is a tool call, and without reasoning all is text.
Read = Callable[[Lexer, EventWriter, Sequence[Tool]], Reading[None]]


@dataclass(frozen=True, slots=True)
class ParserFamily:
    """Reads the output of one family of models. `special_texts`: tokens of this family's syntax.
    The decoder passes on even tokens that the tokenizer calls special. `reasoning` None: the family
    writes no reasoning."""

    read: Read
    special_texts: frozenset[str] = frozenset()
    reasoning: ReasoningTags | None = None

    def new_parser(
        self, writer: EventWriter, tools: Sequence[Tool], *, opens_reasoning: bool
    ) -> Parser:
        """Return a parser for one choice. `opens_reasoning`: the prompt ends inside reasoning."""
        if self.reasoning is None and not tools:
            return PlainParser(writer.text)
        is_reasoning = opens_reasoning and self.reasoning is not None
        return Parser(lambda lexer: self.read(lexer, writer, tools), is_reasoning=is_reasoning)


class PlainParser(Parser):
    """Passes on all text to `write`. It runs no generator, because most answers are plain."""

    def __init__(self, write: Callable[[str], None], *, is_reasoning: bool = False) -> None:
        super().__init__(_read_nothing, is_reasoning=is_reasoning)
        self.write_rest = write


def _read_nothing(_: Lexer) -> Reading[None]:
    yield


def _read_text(lexer: Lexer, writer: EventWriter, _: Sequence[Tool]) -> Reading[None]:
    writer.text(lexer.take_all())
    lexer.write_rest = writer.text
    yield


PLAIN = ParserFamily(_read_text)  # models whose output is only text

_LEAST_TAG: Final = 2

# Reads one call, or all calls of one opening tag, after the given spelling of the tag. Raises
# `UnexpectedText` for text that is no call, unless a call has started.
ReadCalls = Callable[[Lexer, EventWriter, str, Sequence[Tool]], Reading[None]]


def calls_family(
    opening: Tag | Callable[[Sequence[Tool]], Tag],
    read_calls: ReadCalls,
    special_texts: Iterable[str],
    *,
    dropped: Sequence[str] = (),
) -> ParserFamily:
    """Return a family that writes text in which an opening tag begins calls. `opening`: the tag, or
    a function that returns the tag for a request's tools. `dropped`: tags that are never text."""

    def read(lexer: Lexer, writer: EventWriter, tools: Sequence[Tool]) -> Reading[None]:
        if not tools:
            return _read_text(lexer, writer, tools)
        tag = opening if isinstance(opening, Tag) else opening(tools)
        return read_with_calls(lexer, writer, tools, tag, read_calls, dropped)

    return ParserFamily(read, frozenset(special_texts))


def start_call(lexer: Lexer, writer: EventWriter, name: str) -> None:
    """Start a call that is certain, unless the call has started. The lexer's mark is None from then
    on."""
    if lexer.mark is not None:
        writer.start_call(name)
        lexer.mark = None


def read_with_calls(
    lexer: Lexer,
    writer: EventWriter,
    tools: Sequence[Tool],
    opening: Tag,
    read_calls: ReadCalls,
    dropped: Sequence[str] = (),
) -> Reading[None]:
    """Read an answer in which text and tool calls come in any order. A false beginning of a call is
    given back as text."""
    answer = _AnswerText(writer)
    is_text, num_calls = True, 0
    tags = Tag(*opening.strings, *dropped)
    try:
        while True:
            spelling = yield from lexer.take_until(tags, answer.write)
            if spelling in dropped:
                continue
            lexer.mark = lexer.at - len(spelling)
            is_text, num_calls = False, writer.num_calls
            try:
                # Models may write an opening tag twice.
                while len(spelling) > _LEAST_TAG and (yield from lexer.take(spelling)):
                    pass
                yield from read_calls(lexer, writer, spelling, tools)
            except UnexpectedText:
                answer.write(lexer.text[lexer.mark : lexer.at])
            lexer.mark = None
            is_text = True
    except EndOfText as end:
        start = lexer.at if is_text else lexer.mark
        rest = "" if start is None else lexer.text[start:]
        if is_text:
            is_syntax = _begins_tag(opening, rest)
        else:
            # Text after brackets alone may be an answer.
            long_tags = tuple(tag for tag in opening.strings if len(tag) > _LEAST_TAG)
            is_syntax = rest.startswith(long_tags) or writer.num_calls > num_calls
        if end.is_closed or not is_syntax:
            answer.write(rest)
        answer.finish()


def _begins_tag(opening: Tag, cut: str) -> bool:
    """Whether an answer is cut inside the tag that opens a call. Clients have no use for half a
    tag. A word, or one bracket, may be text."""
    return (
        len(cut) >= _LEAST_TAG
        and not cut[0].isalnum()
        and any(tag.startswith(cut) for tag in opening.strings)
    )


class _AnswerText:
    """The text of an answer with calls. White space alone between calls is syntax; beside other
    text it is part of the answer."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self._num_calls_before = self._num_calls = writer.num_calls
        self._space = ""  # syntax, unless text follows
        self._is_blank = True  # no text since the last call

    def write(self, text: str) -> None:
        if self._writer.num_calls > self._num_calls:
            self._num_calls = self._writer.num_calls
            self._is_blank = True
            self._space = ""
        if self._is_blank:
            text = self._space + text
            if not text or text.isspace():
                self._space = text
                return
            self._is_blank = False
        self._writer.text(text)

    def finish(self) -> None:
        if self._is_blank and self._writer.num_calls == self._num_calls_before:
            self._writer.text(self._space)  # the whole answer is white space


def with_reasoning(family: ParserFamily, tags: ReasoningTags) -> ParserFamily:
    read_answer = family.read
    if tags.answer_tags is not None:
        read_answer = _without_tags(read_answer, *tags.answer_tags)

    def read(lexer: Lexer, writer: EventWriter, tools: Sequence[Tool]) -> Reading[None]:
        trimmed = _TrimmedText(writer.reasoning).write
        reasoning: Parser = PlainParser(trimmed)
        if tools and family.reasoning is None and family is not PLAIN:
            reasoning = DraftedReasoning(family.read, writer, tools, trimmed)
        yield from _read_reasoning(lexer, reasoning, tags)
        yield from read_answer(lexer, writer, tools)

    special_texts = family.special_texts.union(tags.open.strings, tags.close.strings)
    return ParserFamily(read, special_texts, tags)


def _read_reasoning(lexer: Lexer, reasoning: Parser, tags: ReasoningTags) -> Reading[None]:
    """Read the reasoning and the white space after it. An opening tag is dropped, also after a
    prompt that has opened the reasoning already."""
    lexer.is_reasoning = lexer.is_reasoning or tags.starts_open
    try:
        is_opened = bool((yield from lexer.take(*tags.open.strings)))
        lexer.is_reasoning = lexer.is_reasoning or is_opened
        if lexer.is_reasoning:
            yield from lexer.take_until(tags.close, reasoning.feed)
            reasoning.close()
            lexer.is_reasoning = False
            yield from lexer.peek()
    except EndOfText as end:
        if lexer.is_reasoning:
            reasoning.feed(lexer.take_all())
            reasoning.finish(is_closed=end.is_closed)
            raise


def _without_tags(read_answer: Read, opening: Tag, closing: Tag) -> Read:
    """Take one pair of tags off an answer: `<response>` ... `</response>`. An answer that does not
    begin with the first tag stays unchanged. White space at both ends between the tags is syntax.
    The last tag may be missing."""

    def read(lexer: Lexer, writer: EventWriter, tools: Sequence[Tool]) -> Reading[None]:
        answer = Parser(lambda inner: read_answer(inner, writer, tools))
        trimmed = _TrimmedText(answer.feed)
        is_tagged = False
        try:
            is_tagged = bool((yield from lexer.take(*opening.strings)))
            if is_tagged:
                yield from lexer.take_until(closing, trimmed.write)
                trimmed.space = ""
                while not lexer.text[lexer.at :].strip():
                    yield
            while True:
                answer.feed(lexer.take_all())
                yield
        except EndOfText as end:
            rest = lexer.take_all()
            if rest.strip() or not is_tagged:
                answer.feed(trimmed.space + rest)
            answer.finish(is_closed=end.is_closed)

    return read


class _TrimmedText:
    """Passes on text without the white space at both ends."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.space = ""  # held back: it may be at the end
        self._write = write
        self._has_begun = False

    def write(self, text: str) -> None:
        text = self.space + (text if self._has_begun else text.lstrip())
        bare = text.rstrip()
        self.space = text[len(bare) :]
        self._has_begun = self._has_begun or bool(bare)
        self._write(bare)
