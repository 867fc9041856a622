"""Grammars are kept up to a number of characters, and take the same steps from the cache."""

from vinery_serving.grammars.grammar.cache import GrammarCache
from vinery_serving.grammars.grammar.steps import spend, step_budget


def translated(cache: GrammarCache, source: str, grammar: str) -> int:
    """Return how many steps the grammar takes, of three that its translation spends."""

    def translate() -> str:
        spend(3)
        return grammar

    with step_budget() as budget:
        assert cache.grammar(source, "how", translate) == grammar
        return budget.num_spent


def test_a_grammar_takes_the_same_steps_from_the_cache_unless_it_is_long():
    cache = GrammarCache()
    assert [translated(cache, "a", "b") for _ in range(2)] == [3, 3]
    assert cache.num_chars == 2
    translated(cache, "c", "b" * 2_000_000)
    assert cache.num_chars == 2


def test_the_cache_keeps_the_last_grammars_up_to_a_number_of_characters():
    cache = GrammarCache()
    for at in range(100):
        translated(cache, f"{at}", "b" * 900_000)
    assert 15_000_000 < cache.num_chars <= 16_000_000
    cache.grammar("99", "how", lambda: "another")
    assert cache.grammar("99", "how", lambda: "another") == "b" * 900_000
    assert cache.grammar("0", "how", lambda: "another") == "another"
