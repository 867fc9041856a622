"""Which tokens a text came from, whatever was dropped or held back before it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.output.attribution import Attribution


def fed(*texts: str) -> Attribution:
    attribution: Attribution = Attribution()
    for text in texts:
        attribution.feed(text, text)
    return attribution


def test_text_has_the_tokens_that_it_came_from() -> None:
    assert fed("Hi", " there").take("Hi there") == ("Hi", " there")
    # Syntax that was dropped has none.
    assert fed("</think>", "\n\n", "think").take("think") == ("think",)


def test_text_that_is_held_back_keeps_its_tokens_for_later() -> None:
    attribution = fed("a", "b")
    assert attribution.take("a") == ("a",)
    attribution.feed("c", "c")
    assert attribution.take("bc") == ("b", "c")


def test_a_token_that_is_cut_is_sent_with_its_first_part() -> None:
    attribution = fed("xy", "z")
    assert attribution.take("x") == ("xy",)
    assert attribution.take("yz") == ("z",)


def test_parts_of_a_character_come_with_the_character() -> None:
    attribution: Attribution = Attribution()
    for token, text in enumerate(["a", "", "", "é", ""]):
        attribution.feed(token, text)
    assert attribution.take("a") == (0,)
    assert attribution.take("é") == (1, 2, 3)


def test_what_was_no_answer_is_forgotten() -> None:
    attribution = fed("{", "}")
    attribution.drop()
    attribution.feed("ok", "ok")
    assert attribution.take("ok") == ("ok",)


@given(st.lists(st.text("ab<", max_size=3), max_size=12), st.data())
def test_every_token_with_text_is_sent_once_however_the_text_is_cut(
    texts: list[str], data: st.DataObject
) -> None:
    whole = "".join(texts)
    attribution: Attribution = Attribution()
    sent: list[int] = []
    num_decoded = num_sent = 0
    for token, text in enumerate(texts):
        attribution.feed(token, text)
        num_decoded += len(text)
        until = data.draw(st.integers(num_sent, num_decoded))
        if until > num_sent:
            sent += attribution.take(whole[num_sent:until])
            num_sent = until
    if num_sent < len(whole):
        sent += attribution.take(whole[num_sent:])

    assert sent == sorted(set(sent))
    assert {token for token, text in enumerate(texts) if text} <= set(sent)
