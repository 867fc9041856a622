"""Environment variables are read with their types. Invalid ones are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tables import table
from vinery.config import env
from vinery.config.env import SettingError

NAME = "VINERY_EXAMPLE"
SetTo = Callable[..., None]


@pytest.fixture
def set_to(monkeypatch: pytest.MonkeyPatch) -> SetTo:
    def set_variable(value: str, name: str = NAME) -> None:
        monkeypatch.setenv(name, value)

    return set_variable


def test_an_empty_variable_is_an_unset_one(set_to: SetTo) -> None:
    set_to("  ")

    assert env.text(NAME, "default") == "default"
    assert env.integer(NAME, 7, at_least=1, at_most=9) == 7
    assert env.on_off(NAME, default=True) is True


@table("word", ["on", "1", "true", "YES", "off", "0", "False", "no", "maybe"])
def test_a_switch_is_read(set_to: SetTo, word: str) -> None:
    is_on = word in ("on", "1", "true", "YES")
    set_to(word)

    if word != "maybe":
        assert env.on_off(NAME, default=not is_on) is is_on
        return
    with pytest.raises(SettingError, match=f"{NAME}='maybe'.*on or off"):
        env.on_off(NAME, default=True)


@table("word", ["0", "10", "-1", "nine", "3.5"])
def test_an_invalid_number_or_one_out_of_range_is_refused(set_to: SetTo, word: str) -> None:
    set_to(word)

    with pytest.raises(SettingError, match=f"{NAME}=.*from 1 to 9"):
        env.integer(NAME, 5, at_least=1, at_most=9)


def test_both_ends_of_a_range_are_accepted(set_to: SetTo) -> None:
    for word in ("1", "9"):
        set_to(word)
        assert env.integer(NAME, 5, at_least=1, at_most=9) == int(word)


def test_a_known_choice_is_accepted_in_any_case(set_to: SetTo) -> None:
    set_to("Daphne")
    assert env.choice(NAME, "uvicorn", among=("uvicorn", "daphne")) == "daphne"

    set_to("gunicorn")
    with pytest.raises(SettingError, match="daphne or uvicorn"):
        env.choice(NAME, "uvicorn", among=("uvicorn", "daphne"))


@table("value", ["vinery.example", "ftp://vinery.example", "https://"])
def test_a_url_of_an_unknown_scheme_is_refused(set_to: SetTo, value: str) -> None:
    set_to(value)

    with pytest.raises(SettingError, match="https://"):
        env.url(NAME, schemes=("https",))


def test_the_last_slash_of_a_url_is_removed_and_a_secret_one_not_repeated(set_to: SetTo) -> None:
    set_to("https://vinery.example/")
    assert env.url(NAME, schemes=("https",)) == "https://vinery.example"

    set_to("mysql://joe:hunter2@db/vinery")
    with pytest.raises(SettingError) as refusal:
        env.url(NAME, schemes=("postgres",), is_secret=True)
    assert "hunter2" not in str(refusal.value)


def test_a_secret_may_be_read_from_a_file(set_to: SetTo, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    set_to(str(file), f"{NAME}_FILE")
    with pytest.raises(SettingError, match=f"{NAME}_FILE=.*secret cannot be read"):
        env.secret(NAME)

    file.write_text("s3cret\n")
    assert env.secret(NAME) == "s3cret"

    set_to("one")
    with pytest.raises(SettingError, match=f"{NAME} and {NAME}_FILE are both set"):
        env.secret(NAME)


def test_a_list_is_split_at_commas(set_to: SetTo) -> None:
    set_to("a, b ,,c")

    assert env.words(NAME) == ["a", "b", "c"]


@table(
    "value, expected",
    [(None, [50, 100]), ("90, 80,90", [80, 90]), ("off", []), ("1,100", [1, 100])],
)
def test_percentages_increase_and_can_be_off(
    monkeypatch: pytest.MonkeyPatch, value: str | None, expected: list[int]
) -> None:
    monkeypatch.delenv(NAME, raising=False)
    if value is not None:
        monkeypatch.setenv(NAME, value)
    assert env.numbers(NAME, (50, 100), at_most=100) == expected


@table("value", ["0", "101", "half", "50;80", "-5", "off,50"])
def test_invalid_percentages_are_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(NAME, value)
    with pytest.raises(SettingError, match=f"{NAME}=.*50,80,100"):
        env.numbers(NAME, (), at_most=100, like="percentages such as 50,80,100")


def test_networks_are_read_and_invalid_ones_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "10.0.0.0/8, fd00::/8")
    assert [str(network) for network in env.networks(NAME)] == ["10.0.0.0/8", "fd00::/8"]
    monkeypatch.setenv(NAME, "10.0.0.1/8")
    with pytest.raises(SettingError, match=f"{NAME}: .*10.0.0.0/8"):
        env.networks(NAME)
