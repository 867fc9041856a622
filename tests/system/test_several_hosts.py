"""Two hosts on one PostgreSQL: each answers for all models, which move from a host that drains or
is gone."""

import json
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, until
from tests.system.hosts import WITHIN_S, Installed, states, two_hosts

pytestmark = pytest.mark.system
MAX_ANSWERS = 10_000


def test_models_answer_from_two_hosts_and_move_from_one_that_drains_or_dies(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as (moon, mars):
        check_moves(moon, mars)


def check_moves(moon: Installed, mars: Installed) -> None:
    both = "b (ready), tiny-chat (ready)"

    def become(**wanted: tuple[str, str]) -> None:
        until(lambda: states(moon) == wanted, timeout_s=WITHIN_S, pause_s=0.5)

    moon.start()
    until((moon.home / "bootstrap.json").exists, timeout_s=WITHIN_S)
    moon.run("model", "add", str(REPOSITORY / "models" / "tiny-chat"), "--name", "b")
    become(moon=("active", both))
    key = json.loads((moon.home / "bootstrap.json").read_text())["api_key"]
    mars.start()
    become(moon=("active", both), mars=("active", ""))

    moon.run("model", "change", "b", "--replicas", "2")
    become(moon=("active", both), mars=("active", "b (ready)"))
    assert "replica 1 on mars" in moon.run("model", "show", "b")
    until(lambda: mars.ask("tiny-chat", key) == 200, timeout_s=WITHIN_S)  # over the relay of moon

    moon.run("model", "change", "tiny-chat", "--idle-s", "1")
    asleep = ("active", "b (ready), tiny-chat (asleep)")
    become(moon=asleep, mars=("active", "b (ready)"))
    assert mars.ask("tiny-chat", key) == 200, "moon's node wakes it for a request of mars"
    become(moon=asleep, mars=("active", "b (ready)"))
    moon.run("model", "change", "tiny-chat", "--idle-s", "0")
    moon.run("model", "load", "tiny-chat")
    become(moon=("active", both), mars=("active", "b (ready)"))

    moon.run("model", "change", "b", "--replicas", "1")
    until(lambda: not mars.engines(), timeout_s=WITHIN_S)
    moon.run("host", "drain", "moon")
    answers = []
    while states(moon) != {"moon": ("draining", ""), "mars": ("active", both)} or moon.engines():
        answers += [host.ask(model, key) for model in ("b", "tiny-chat") for host in (moon, mars)]
        assert len(answers) < MAX_ANSWERS
    assert set(answers) == {200}, "no request fails while models move"
    assert len(mars.engines()) == 2
    moon.run("host", "resume", "moon")

    mars.kill()
    become(moon=("active", both), mars=("gone", ""))
    assert [moon.ask(model, key) for model in ("b", "tiny-chat")] == [200, 200]
    mars.start()
    become(moon=("active", both), mars=("active", ""))
    until(lambda: mars.ask("b", key) == 200, timeout_s=WITHIN_S)
    assert mars.engines() == []
