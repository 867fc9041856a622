"""Whether a known JSON value fits a schema: for `enum` and `const` beside other keywords. Each
answer is kept, because a schema that contains itself asks again and again."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from vinery_serving.grammars.grammar.languages import Matcher
from vinery_serving.grammars.json_schema.nodes import SchemaNode, canonical, constants_of
from vinery_serving.grammars.json_schema.strings import pattern_language


class KnownValues:
    """Decides which values of one document fit its nodes. `resolve` returns the target of a node's
    `$ref`. The values must live as long as this object."""

    def __init__(self, resolve: Callable[[SchemaNode], SchemaNode]) -> None:
        self._resolve = resolve
        self._fitting: dict[tuple[int, SchemaNode], bool] = {}
        self._listed: dict[SchemaNode, frozenset[str]] = {}
        self._matchers: dict[str, Matcher] = {}

    def fits(self, value: Any, node: SchemaNode) -> bool:
        if isinstance(node.schema, bool):
            return node.schema
        key = (id(value), node)
        found = self._fitting.get(key)
        if found is None:
            found = self.fits_here(value, node) and self._fits_others(value, node)
            self._fitting[key] = found
        return found

    def _fits_others(self, value: Any, node: SchemaNode) -> bool:
        words = node.keywords

        def each(word: str) -> Iterator[bool]:
            return (self.fits(value, node.at(word, at)) for at in range(len(words.get(word, ()))))

        return (
            ("$ref" not in words or self.fits(value, self._resolve(node)))
            and all(each("allOf"))
            and ("anyOf" not in words or any(each("anyOf")))
            and ("oneOf" not in words or sum(each("oneOf")) == 1)
        )

    def fits_here(self, value: Any, node: SchemaNode) -> bool:
        """Return whether a value fits the schema, apart from its `$ref`, `allOf`, `anyOf` and
        `oneOf`, which become alternatives."""
        words = node.keywords
        if words.keys() & {"const", "enum"} and not self._is_listed(value, node):
            return False
        kinds = words.get("type", _types_of(value))
        if not set(_types_of(value)) & set([kinds] if isinstance(kinds, str) else kinds):
            return False
        match value:
            case bool() | None:
                return True
            case str():
                return _is_count(len(value), node, "Length") and (
                    "pattern" not in words or self.is_found(words["pattern"], value)
                )
            case int() | float():
                return all(
                    is_met(value, words[word]) for word, is_met in _BOUNDS.items() if word in words
                )
            case list():
                items = ((each, node.item(at)) for at, each in enumerate(value))
                return _is_count(len(value), node, "Items") and all(
                    item is None or self.fits(each, item) for each, item in items
                )
            case _:
                return self._object_fits(value, node)

    def _is_listed(self, value: Any, node: SchemaNode) -> bool:
        """Whether the value is in the `const` and in the `enum` of a node, if present."""
        listed = self._listed.get(node)
        if listed is None:
            lists = [
                constants_of({word: node.keywords[word]})
                for word in ("const", "enum")
                if word in node.keywords
            ]
            listed = frozenset.intersection(*(frozenset(map(canonical, each)) for each in lists))
            self._listed[node] = listed
        return canonical(value) in listed

    def is_found(self, pattern: str, text: str) -> bool:
        """Return whether a pattern is found in a text; True for a pattern that is not regular."""
        if pattern not in self._matchers:
            self._matchers[pattern] = Matcher(pattern_language(pattern))
        return self._matchers[pattern].may_match(text)

    def _object_fits(self, value: dict[str, Any], node: SchemaNode) -> bool:
        words = node.keywords
        return (
            _is_count(len(value), node, "Properties")
            and all(name in value for name in words.get("required", ()))
            and all(
                self.fits(each, member)
                for name, each in value.items()
                for member in self.member_nodes(node, name)
            )
            and (
                "propertyNames" not in words
                or all(self.fits(name, node.at("propertyNames")) for name in value)
            )
        )

    def member_nodes(self, node: SchemaNode, name: str) -> list[SchemaNode]:
        """Return all schemas that the member of this name must fit."""
        words = node.keywords
        found = [node.at("properties", name)] if name in words.get("properties", {}) else []
        for pattern in words.get("patternProperties", ()):
            if self.is_found(pattern, name):
                found.append(node.at("patternProperties", pattern))
        if not found and "additionalProperties" in words:
            found.append(node.at("additionalProperties"))
        return found


def _types_of(value: Any) -> tuple[str, ...]:
    match value:
        case bool():
            return ("boolean",)
        case None:
            return ("null",)
        case str():
            return ("string",)
        case int() | float():
            return ("number", "integer") if value == int(value) else ("number",)
        case list():
            return ("array",)
        case _:
            return ("object",)


_BOUNDS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "multipleOf": lambda value, factor: value % factor == 0,
}


def _is_count(count: int, node: SchemaNode, what: str) -> bool:
    words = node.keywords
    return bool(words.get(f"min{what}", 0) <= count <= words.get(f"max{what}", count))
