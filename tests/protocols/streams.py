"""Random valid streams of events."""

from hypothesis import strategies as st

from vinery_serving.core import events as ev
from vinery_serving.core.events import Token, ToolCallStarted, TopLogprob

# Letters of one to four bytes, and the characters that JSON escapes or clients split lines at.
_LETTERS = 'aé中🍇 "\\/\r\n\t\x00\x0b\x0c\x1c\x1d\x1e\x7f\x85\u2028\u2029\ufeff'
TEXTS = st.text(_LETTERS, max_size=6)
COUNTS = st.integers(0, 2**40)
USAGES = st.builds(ev.TokenCounts, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
NAMES = st.from_regex(r"[A-Za-z0-9_.-]{1,12}", fullmatch=True)

TOP_LOGPROBS = st.builds(
    TopLogprob, st.integers(0, 9), TEXTS, st.binary(max_size=3), st.floats(-99, 0)
)
TOKENS = st.builds(
    Token,
    st.integers(0, 9),
    TEXTS,
    st.binary(max_size=3),
    st.floats(-99, 0),
    st.integers(1, 9),
    st.lists(TOP_LOGPROBS, max_size=2).map(tuple),
)
IDS = st.lists(st.integers(0, 2**31 - 1), max_size=3).map(tuple)
NO_TOKENS: st.SearchStrategy[tuple[Token, ...]] = st.just(())


@st.composite
def deltas_of(
    draw: st.DrawFn,
    choice: int,
    tokens: st.SearchStrategy[tuple[Token, ...]],
    *,
    only_functions: bool,
) -> list[ev.Delta]:
    """The deltas of one choice. A call's arguments follow it at once."""
    deltas: list[ev.Delta] = []
    num_calls = 0
    for kind in draw(
        st.lists(st.sampled_from(["reasoning", "text", "call", "custom"]), max_size=5)
    ):
        texts = draw(st.lists(TEXTS, max_size=3))
        match kind:
            case "reasoning":
                deltas += [ev.ReasoningDelta(choice, text) for text in texts]
            case "text":
                deltas += [ev.TextDelta(choice, text, draw(tokens)) for text in texts]
            case _:
                is_custom = kind == "custom" and not only_functions
                call_id = f"call_{choice}_{num_calls}"
                deltas.append(ToolCallStarted(choice, num_calls, call_id, draw(NAMES), is_custom))
                deltas += [ev.ToolCallDelta(choice, num_calls, text, is_custom) for text in texts]
                num_calls += 1
    return deltas


ENDS = st.tuples(
    st.sampled_from(ev.FinishReason), st.none() | st.text() | st.integers(0, 2**31 - 1)
)


def tokens_made(choice: int) -> st.SearchStrategy[list[ev.Event]]:
    """The other events of a choice."""
    made: st.SearchStrategy[ev.Event] = st.builds(ev.TokensGenerated, st.just(choice), IDS, TEXTS)
    return st.lists(made, max_size=4)


@st.composite
def event_streams(
    draw: st.DrawFn,
    num_choices: int,
    *,
    with_tokens: bool = False,
    only_functions: bool = False,
    num_prompts_with_ids: int = 0,
    with_compaction: bool = False,
) -> list[ev.Event]:
    """A completed stream whose choices are interleaved at random. With
    `num_prompts_with_ids` it has the ids of all tokens."""
    tokens = st.lists(TOKENS, max_size=2).map(tuple) if with_tokens else NO_TOKENS
    tracks: list[list[ev.Event]] = [
        [
            *draw(deltas_of(choice, tokens, only_functions=only_functions)),
            ev.Finished(choice, *draw(ENDS), is_context_full=draw(st.booleans())),
        ]
        for choice in range(num_choices)
    ]
    if num_prompts_with_ids:
        for choice, track in enumerate(tracks):
            track[:0] = draw(tokens_made(choice))
    for choice, track in enumerate(tracks):
        track[:0] = [ev.FirstToken(choice)] * draw(st.integers(0, 1))
    if draw(st.booleans()):
        tracks.append([ev.Progress(usage) for usage in draw(st.lists(USAGES, max_size=3))])
    prompts = [(draw(IDS), draw(TEXTS)) for _ in range(num_prompts_with_ids)]
    started = ev.Started(num_choices, tuple(p[0] for p in prompts), tuple(p[1] for p in prompts))
    events: list[ev.Event] = [started]
    if with_compaction and draw(st.booleans()):
        events += [ev.Compacted(), ev.Compacted("sealed")]
    while tracks := [track for track in tracks if track]:
        events.append(draw(st.sampled_from(tracks)).pop(0))
    return [*events, ev.Completed(draw(USAGES), at=draw(st.integers(0, 2**40)))]
