"""The last grammars that were translated: clients send the same schema with every request."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Final

from vinery_serving.grammars.grammar.steps import Counted, counted, result_of

# A grammar may be a hundred times as long as its source, so their number is no bound.
_MAX_CHARS: Final = 16_000_000
_MAX_CHARS_OF_ONE: Final = 1_000_000


class GrammarCache:
    """Grammars by their source, up to 16 million characters together. Threads may share it."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, tuple[Counted[str], int]] = OrderedDict()
        self.num_chars = 0  # of all sources and their grammars
        self._lock = Lock()

    def grammar(self, source: str, how: Hashable, translate: Callable[[], str]) -> str:
        """Return what `translate` returns for `source`; `how` is what else it depends on.

        Spends the same steps whether the grammar was known or not. Raises `OutOfSteps`.
        """
        key = (source, how)
        with self._lock:
            found, _ = self._known.get(key, (None, 0))
            if found is not None:
                self._known.move_to_end(key)
        if found is None:
            found = counted(translate)
            self._keep(key, found, len(source) + len(found.value))
        return result_of(found)

    def clear(self) -> None:
        """Forget all grammars."""
        with self._lock:
            self._known.clear()
            self.num_chars = 0

    def _keep(self, key: Hashable, found: Counted[str], num_chars: int) -> None:
        with self._lock:
            if num_chars > _MAX_CHARS_OF_ONE or key in self._known:
                return
            self._known[key] = (found, num_chars)
            self.num_chars += num_chars
            while self.num_chars > _MAX_CHARS:
                _, (_, num_removed) = self._known.popitem(last=False)
                self.num_chars -= num_removed
