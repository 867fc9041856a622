"""Redaction removes every match of a rule from captures, in linear time. Captures keep the texts of
a body, and not its files."""

import base64
import json
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_accounts.base.redaction import BUILT_IN, MASK, Redactor, check_redactions, folded
from vinery_accounts.captures.documents import redacted, without_files

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "protocols"

# Few letters, so that literals match often, overlap, and nearly match. No field name of the
# protocols contains one of these letters: it would be redacted too.
LITERALS = st.text(alphabet='qzQZ"\\\né ', min_size=1, max_size=6).filter(lambda text: text.strip())
TEXTS = st.text(alphabet='qzQZ"\\\néßİ ', max_size=60)


@table(
    "rule, text, kept",
    [
        ("email", "Ask anna.b+x@mail.example.com, now", f"Ask {MASK}, now"),
        ("email", "as@ is, a @ b.c, user@localhost", "as@ is, a @ b.c, user@localhost"),
        ("email", "<é@ü.example>", f"<{MASK}>"),
        ("card", "Visa 4111 1111 1111 1111.", f"Visa {MASK}."),
        ("card", "4111-1111-1111-1111 or 378282246310005", f"{MASK} or {MASK}"),
        ("card", "in 2026 there were 123 456 of 1 2 3 4 5 6 7 8 9 10 11 12 13", None),
        ("phone", "Call +49 (30) 1234-567!", f"Call {MASK}!"),
        ("phone", "0301234567, 555-123-4567", f"{MASK}, {MASK}"),
        ("phone", "12345678 cats, 12.50 EUR", None),
        ("ip", "192.0.2.17:443 and 2001:db8::1: to ::1", f"{MASK}:443 and {MASK}: to {MASK}"),
        ("ip", "at 12:30:45 std::string", None),
        ("secret", "Authorization: Bearer abcdef", f"Authorization: Bearer {MASK}"),
        ("secret", 'password="hunter2", api_key: k-12', f'password="{MASK}", api_key: {MASK}'),
        ("secret", "sk-proj-abcdefghij0123456789 is it", f"{MASK} is it"),
        ("secret", "-----BEGIN RSA PRIVATE KEY-----\nMII/x+\n-----END", f"{MASK}-----END"),
        ("secret", "internationalisation-of-everything and a token", None),
        ("Project X", "PROJECT x, projects X", f"{MASK}, projects X"),
    ],
)
def test_each_rule_finds_its_kind_of_secret(rule: str, text: str, kept: str | None) -> None:
    assert Redactor([rule]).text(text) == (text if kept is None else kept)


@given(st.lists(LITERALS, min_size=1, max_size=4), TEXTS)
def test_a_literal_is_redacted_in_a_text(literals: list[str], text: str) -> None:
    kept = folded(Redactor(literals).text(text))
    assert not any(folded(literal) in kept for literal in literals)


@given(LITERALS, st.lists(st.text(alphabet='qzQZ"\\\né', max_size=4), max_size=20), st.booleans())
def test_a_literal_is_redacted_across_deltas(
    literal: str, deltas: list[str], is_truncated: bool
) -> None:
    kept = Redactor([literal]).parts(deltas, is_truncated=is_truncated)
    assert len(kept) == len(deltas)
    assert folded(literal) not in folded("".join(kept))
    if is_truncated:
        assert "".join(kept) in ("", MASK)


def answer_in_deltas(deltas: list[str]) -> bytes:
    events = [{"choices": [{"index": 0, "delta": {"content": each}}]} for each in deltas]
    calls = [
        {"choices": [{"index": 1, "delta": {"tool_calls": [{"index": 0, "function": call}]}}]}
        for call in ({"arguments": each} for each in deltas)
    ]
    written = [json.dumps(each).encode() for each in (*events, *calls)]
    return b"".join(b"data: %b\n\n" % each for each in (*written, b"[DONE]"))


def content_of(stream: bytes, choice: int) -> str:
    texts = []
    for line in stream.splitlines():
        if line.startswith(b"data: {"):
            choice_object = json.loads(line[6:])["choices"][0]
            if choice_object["index"] == choice:
                delta = choice_object["delta"]
                call = delta.get("tool_calls", [{"function": {"arguments": ""}}])[0]
                texts.append(delta.get("content", call["function"]["arguments"]))
    return "".join(texts)


@given(LITERALS, TEXTS, st.data())
def test_a_literal_is_redacted_in_a_body_and_an_answer(
    literal: str, around: str, data: st.DataObject
) -> None:
    text_around = around + literal.swapcase() + around
    nested = json.dumps({"text": text_around})  # like the arguments of a tool call
    body = json.dumps(
        {literal: 1, "messages": [{"content": [{"text": text_around}]}, {"arguments": nested}]},
        ensure_ascii=data.draw(st.booleans()),
    )
    redactor = Redactor([literal])
    kept, is_redacted = redacted(body.encode(), redactor, is_cut=False) or (b"", False)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text_around)), max_size=8)))
    deltas = [text_around[a:b] for a, b in zip([0, *cuts], [*cuts, len(text_around)], strict=True)]
    stream, _ = redacted(answer_in_deltas(deltas), redactor, is_cut=False) or (b"", False)

    needle = folded(literal)
    if folded(literal.swapcase()) == needle:
        assert is_redacted
        assert all(needle not in folded(text) for text in strings_in(json.loads(kept)))
        for choice in (0, 1):
            assert needle not in folded(content_of(stream, choice))


def strings_in(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for pair in value.items() for each in pair for text in strings_in(each)]
        case list():
            return [text for each in value for text in strings_in(each)]
    return []


def test_earlier_values_of_a_name_tokens_and_cut_ends_are_left_out() -> None:
    repeated = b'{"prompt": "hunter2", "prompt": "x"}'
    assert redacted(repeated, Redactor(["hunter2"]), is_cut=False) == (b'{"prompt":"x"}', False)

    body = {
        "prompt": [5, 6],
        "logprobs": True,
        "messages": [{"content": [7]}],
        "stop_token_ids": [2],
    }
    answer = {"choices": [{"logprobs": {"content": [{"token": "hun", "bytes": [104]}]}}]}
    redactor = Redactor(["email"])
    kept, is_redacted = redacted(json.dumps(body).encode(), redactor, is_cut=False) or (b"", None)
    assert json.loads(kept) == body | {"prompt": None, "messages": [{"content": None}]}
    assert is_redacted
    kept, _ = redacted(json.dumps(answer).encode(), redactor, is_cut=False) or (b"", None)
    assert json.loads(kept) == {"choices": [{"logprobs": None}]}

    whole = answer_in_deltas(["a " * 200, "hun", "ter"])
    kept, is_redacted = redacted(whole[:-30], Redactor(["hunter2"]), is_cut=True) or (b"", None)
    assert is_redacted
    assert "hun" not in content_of(kept, 0)
    assert content_of(kept, 0).startswith("a a a")


@table("document", [b"hunter2", b'{"prompt": "hunt', b"\xff", b"[" * 100_000])
def test_content_that_cannot_be_searched_is_not_stored(document: bytes) -> None:
    assert redacted(document, Redactor(["hunter2"]), is_cut=False) is None


@table("name", ["text", "thinking", "partial_json"])
def test_a_literal_is_redacted_across_the_deltas_of_a_block(name: str) -> None:
    kind = {"partial_json": "input_json"}.get(name, name)
    events = [
        {"type": "content_block_delta", "index": at, "delta": {"type": f"{kind}_delta", name: part}}
        for part in ("is hun", "ter2", " now")
        for at in (0, 1)
    ]
    stream = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)

    kept, is_redacted = redacted(stream, Redactor(["hunter2"]), is_cut=False) or (b"", None)

    deltas = [json.loads(line[6:]) for line in kept.splitlines() if line]
    assert is_redacted
    for at in (0, 1):
        text = "".join(each["delta"][name] for each in deltas if each["index"] == at)
        assert text.startswith("is ")
        assert "hunter2" not in text
    assert {each["delta"]["type"] for each in deltas} == {f"{kind}_delta"}


@table("path", sorted(GOLDEN.glob("*.sse")))
def test_streams_of_all_protocols_keep_their_events(path: Path) -> None:
    stream = path.read_bytes()
    kept, _ = redacted(stream, Redactor(["nothing of this"]), is_cut=False) or (b"", None)
    assert kept.count(b"data: ") == stream.count(b"data: ")
    assert kept.endswith(stream[-14:]) or not stream.endswith(b"data: [DONE]\n\n")
    everything = Redactor([*string.ascii_letters[:20]])
    kept, is_redacted = redacted(stream, everything, is_cut=False) or (b"", None)
    assert is_redacted


def test_only_built_in_rules_spare_the_model_name() -> None:
    name = "meta-llama-3.1-8b-instruct-int4-ov"
    assert Redactor(["secret"], spared=name).text(name) == name
    redactor = Redactor(["secret", "llama"], spared=name)
    assert redactor.text(name) == name.replace("llama", MASK)
    assert MASK in Redactor(["secret"]).text(name)


@table(
    "value, word",
    [
        ("email", "list"),
        ([1], "list"),
        ([" "], "characters"),
        (["x" * 201], "characters"),
        (["x"] * 21, "20"),
        ([f"a{MASK}"], MASK[0]),
    ],
)
def test_an_invalid_rule_is_refused(value: object, word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        check_redactions(value)


# Texts that cause backtracking in patterns.
_SEEDS = (
    *("a", "1", "1 ", "12-", "@", "a@", "a.", "@a.", "a@a", "+", "(", "0 ", ":", "a:", "1:", "1."),
    *("::", "-", "=", "token=", "token ", "bearer ", "-----BEGIN ", "A ", "123 ", "_", "\\\\", "é"),
)
_SEARCH = f"""
from vinery_accounts.base.redaction import Redactor
for rule in {list(BUILT_IN)!r}:
    redactor = Redactor([rule, "a" * 199 + "b", "a" * 198 + "cb"])
    for seed in {_SEEDS!r}:
        redactor.text(seed * (400_000 // len(seed)))
"""


def test_every_rule_searches_a_long_text_in_bounded_time() -> None:
    # A rule that is not linear takes hours for these texts. The deadline is generous.
    subprocess.run([sys.executable, "-c", _SEARCH], check=True, timeout=100)


# -- Files, of which only texts are kept

LONG = "QUJD" * 1000
MANY = 10**6


def body_of(*urls: str, text: str = "What is it?") -> bytes:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return json.dumps({"messages": [{"role": "user", "content": [*parts, text]}]}).encode()


def test_files_are_left_out_and_the_texts_after_them_stay_also_in_a_broken_body() -> None:
    body = body_of(f"data:image/png;base64,{LONG}", f"data:image/gif;base64,{LONG}")
    kept, num_bytes = without_files(body, MANY)
    left_out = f"[{len(LONG)} characters of a file]"
    assert kept == body.replace(LONG.encode(), left_out.encode())
    assert num_bytes == len(kept)
    assert json.loads(kept)["messages"][0]["content"][-1] == "What is it?"

    kept, _ = without_files(b'{"a": "data:;base64,' + LONG.encode(), MANY)
    assert kept == b'{"a": "data:;base64,[4000 characters of a file]'


PICTURE = bytes(range(256)) * 8
BASE64 = base64.b64encode(PICTURE).decode()
HEAD = "data:image/png;base64,"
FORMS = {
    "plain": BASE64,
    "of URLs": base64.urlsafe_b64encode(PICTURE).decode(),
    "in lines": base64.encodebytes(PICTURE).decode().replace("\n", "\\r\\n"),
    "of PHP": BASE64.replace("/", "\\/"),
    "URL": HEAD + BASE64,
    "URL with percents": HEAD + BASE64.replace("+", "%2B"),
    "in a text": f"Look at ![this]({HEAD}{BASE64}), please",
    "in JSON": json.dumps(json.dumps({"data": BASE64}))[1:-1],
}


@table("form", FORMS)
@table("start", ['{"a": {"data": "', '{"a":"', '{"a": "b"", "c": "', '"', ""])
def test_no_usual_form_of_a_file_is_kept_in_any_member_of_good_or_damaged_json(
    form: str, start: str
) -> None:
    body = f'{start}{FORMS[form]}", "text": "What is it?"}}'.encode()
    kept, num_bytes = without_files(body, MANY)

    assert len(kept) < 200
    assert b"characters of a file]" in kept
    assert kept.endswith(b'", "text": "What is it?"}')
    assert num_bytes == len(kept)


@table(
    "text",
    [
        "the cat sat on the mat and said nothing for 1000 days " * 20,
        "Data: the sales of May, June and July. " * 20,
        "\u4e2d\u6587" * 400,
        "https://example.com/a/b.html?c=1&d=2;" * 20,
        "def f(a, b):\n\treturn [a, b]\n" * 20,
        BASE64[:500],
    ],
)
@table("is_ascii", [True, False])
def test_texts_stay(text: str, is_ascii: bool) -> None:
    body = json.dumps({"messages": [{"content": text}]}, ensure_ascii=is_ascii).encode()
    assert without_files(body, MANY) == (body, len(body))


@table("max_bytes", [0, 1, 60, 61, 70, 90, 100, 120, 200, 10_000])
def test_so_many_bytes_are_kept(max_bytes: int) -> None:
    body = body_of(f"data:;base64,{LONG}", text="a" * 50)
    whole, num_bytes = without_files(body, MANY)

    kept, num_at_least = without_files(body, max_bytes)
    assert kept == whole[:max_bytes]
    assert num_at_least >= num_bytes
    assert (num_at_least == len(kept)) == (num_bytes <= max_bytes)


def test_a_file_is_left_out_whose_end_is_far_behind_the_kept_part() -> None:
    file = b"QUJD" * MANY
    for start in (b'"', b'"see: '):
        kept, _ = without_files(b'%b%b?", 1' % (start, file), MANY)
        assert kept.startswith(start + b"[40000")
        assert kept.endswith(b'", 1')
