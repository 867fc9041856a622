"""Environment variables are read with their types. Invalid ones are refused by name."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tables import table
from vinery.config import env
from vinery.config.env import SettingError

NAME = "VINERY_EXAMPLE"
Read = Callable[[], object]


def switch() -> bool:
    return env.on_off(NAME, default=False)


def switch_that_is_on() -> bool:
    return env.on_off(NAME, default=True)


def number() -> int:
    return env.integer(NAME, 5, at_least=1, at_most=9)


def choice() -> str:
    return env.choice(NAME, "uvicorn", among=("uvicorn", "daphne"))


def url() -> str:
    return env.url(NAME, schemes=("https",))


def secret_url() -> str:
    return env.url(NAME, schemes=("postgres",), is_secret=True)


def percentages() -> list[int]:
    like = "percentages such as 50,80,100"
    return list(env.numbers(NAME, (50, 100), at_most=100, like=like))


def words() -> list[str]:
    return list(env.words(NAME))


def networks() -> list[str]:
    return [str(network) for network in env.networks(NAME)]


@table(
    "read, value, expected",
    [
        *((switch, word, True) for word in ("on", "1", "true", "YES")),
        *((switch_that_is_on, word, False) for word in ("off", "0", "False", "no")),
        *((number, "1", 1), (number, "9", 9)),
        (choice, "Daphne", "daphne"),
        (url, "https://vinery.example/", "https://vinery.example"),
        *((percentages, "90, 80,90", [80, 90]), (percentages, "1,100", [1, 100])),
        (percentages, "off", []),
        (words, "a, b ,,c", ["a", "b", "c"]),
        (networks, "10.0.0.0/8, fd00::/8", ["10.0.0.0/8", "fd00::/8"]),
        # An empty variable is an unset one.
        *((switch_that_is_on, "  ", True), (number, "  ", 5), (choice, "  ", "uvicorn")),
        (percentages, "  ", [50, 100]),
    ],
)
def test_a_value_is_read(
    monkeypatch: pytest.MonkeyPatch, read: Read, value: str, expected: object
) -> None:
    monkeypatch.setenv(NAME, value)

    assert read() == expected


@table(
    "read, value, message",
    [
        (switch, "maybe", f"{NAME}='maybe'.*on or off"),
        *((number, word, f"{NAME}=.*from 1 to 9") for word in ("0", "10", "-1", "nine", "3.5")),
        (choice, "gunicorn", "daphne or uvicorn"),
        *((url, word, "https://") for word in ("a.example", "ftp://a.example", "https://")),
        (secret_url, "mysql://joe:hunter2@db/vinery", NAME),
        *(
            (percentages, word, f"{NAME}=.*50,80,100")
            for word in ("0", "101", "half", "50;80", "-5", "off,50")
        ),
        (networks, "10.0.0.1/8", f"{NAME}: .*10.0.0.0/8"),
    ],
)
def test_an_invalid_value_is_refused_by_name_and_a_password_not_repeated(
    monkeypatch: pytest.MonkeyPatch, read: Read, value: str, message: str
) -> None:
    monkeypatch.setenv(NAME, value)

    with pytest.raises(SettingError, match=message) as refusal:
        read()
    assert "hunter2" not in str(refusal.value)


def test_a_secret_may_be_read_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    monkeypatch.setenv(f"{NAME}_FILE", str(file))
    with pytest.raises(SettingError, match=f"{NAME}_FILE=.*secret cannot be read"):
        env.secret(NAME)

    file.write_text("s3cret\n")
    assert env.secret(NAME) == "s3cret"

    monkeypatch.setenv(NAME, "one")
    with pytest.raises(SettingError, match=f"{NAME} and {NAME}_FILE are both set"):
        env.secret(NAME)
