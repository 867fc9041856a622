"""Which tokens a text came from, whatever was dropped or held back before it."""

from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.output.attribution import Attribution


def fed(*texts: str) -> Attribution:
    attribution: Attribution = Attribution()
    for text in texts:
        attribution.feed(text, text)
    return attribution


def test_text_has_the_tokens_that_it_came_from():
    assert fed("Hi", " there").take("Hi there") == ("Hi", " there")
    # Syntax that was dropped has none.
    assert fed("</think>", "\n\n", "think").take("think") == ("think",)
    # A token that is cut is sent with its first part.
    attribution = fed("xy", "z")
    assert [attribution.take(text) for text in ("x", "yz")] == [("xy",), ("z",)]
    # Parts of a character come with the character.
    parts: Attribution = Attribution()
    for token, text in enumerate(["a", "", "", "é", ""]):
        parts.feed(token, text)
    assert [parts.take(text) for text in ("a", "é")] == [(0,), (1, 2, 3)]


def test_text_that_is_held_back_keeps_its_tokens_and_what_is_dropped_is_forgotten():
    attribution = fed("a", "b")
    assert attribution.take("a") == ("a",)
    attribution.feed("c", "c")
    assert attribution.take("bc") == ("b", "c")

    attribution = fed("{", "}")
    attribution.drop()
    attribution.feed("ok", "ok")
    assert attribution.take("ok") == ("ok",)


@given(st.lists(st.text("ab<", max_size=3), max_size=12), st.data())
def test_every_token_with_text_is_sent_once_however_the_text_is_cut(texts, data):
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
