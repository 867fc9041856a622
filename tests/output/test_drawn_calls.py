"""A call whose meaning is plain is read whole, by every family that can write it, in any parts."""

import json

from tests.tables import table

from .builders import Folded, a_parser, folded
from .calls import FORMS, KINDS, TOOLS, Call, Sample, samples

NUM_SAMPLES = 12
DISTANCE = 53  # in characters, between the borders at which a text is cut


def read(family: str, sample: Sample, parts: list[str]) -> Folded:
    parser = a_parser(family, tools=TOOLS)
    return folded(parser, parts, is_whole=not sample.is_cut)


def meaning(name: str, arguments: object) -> str:
    """True is not 1 here."""
    return json.dumps([name, arguments], sort_keys=True)


@table("family", FORMS)
@table("kind", KINDS)
def test_a_call_whose_meaning_is_plain_is_read_whole(family: str, kind: str) -> None:
    for sample in samples(family, kind, NUM_SAMPLES, seed=2):
        answer = read(family, sample, [sample.text])
        calls = [each for each in answer if each[0] != "text" and not each[0].startswith("open ")]
        whole = calls[: len(sample.meant)]

        meant = [meaning(call.name, call.arguments) for call in sample.meant]
        assert [meaning(name, json.loads(text)) for name, text in whole] == meant, sample.text
        assert len(calls) <= len(sample.meant) + sample.is_cut, sample.text
        said = "".join(text for kind, text in answer if kind == "text")
        assert not any(mark in said for mark in FORMS[family].markup), sample.text


@table("family", FORMS)
@table("kind", KINDS)
def test_it_is_read_the_same_in_parts(family: str, kind: str) -> None:
    for sample in samples(family, kind, 1, seed=1):
        text, whole = sample.text, read(family, sample, [sample.text])

        assert read(family, sample, list(text)) == whole, text
        for at in range(0, len(text), DISTANCE):
            assert read(family, sample, [text[:at], text[at:]]) == whole, (at, text)


def test_a_call_that_is_cut_has_no_end() -> None:
    text = '<tool_call>{"name": "ping", "arguments": {"a'
    assert read("hermes", Sample(text, (Call("ping", {}),), is_cut=True), [text]) == [
        ("open ping", '{"a')
    ]
