"""Whether a known JSON value fits a schema: for `enum` and `const` beside other keywords.

Keywords that a grammar cannot enforce are not checked here either. Each answer is kept, because a
schema that contains itself asks again and again whether the same value fits the same node.
"""

from collections.abc import Callable
from typing import Any, Final

from vinery_serving.grammars.grammar.languages import Matcher, NotRegular
from vinery_serving.grammars.grammar.patterns import search_language
from vinery_serving.grammars.grammar.steps import spend
from vinery_serving.grammars.json_schema.nodes import SchemaNode, canonical, constants_of

Resolve = Callable[[SchemaNode], SchemaNode]

# The characters of a value that are compared in one step.
_CHARS_IN_A_STEP: Final = 20


class KnownValues:
    """Decides which values of one document fit its nodes.

    `resolve` returns the target of a node's `$ref`. The values must live as long as this object.
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._fitting: dict[tuple[int, SchemaNode], bool] = {}
        self._texts: dict[int, str] = {}
        self._constants: dict[tuple[str, SchemaNode], frozenset[str]] = {}
        self._matchers: dict[str, Matcher | None] = {}

    def fits(self, value: Any, node: SchemaNode) -> bool:
        """Return whether a value fits a schema."""
        if isinstance(node.schema, bool):
            return node.schema
        key = (id(value), node)
        found = self._fitting.get(key)
        if found is None:
            found = self._fitting[key] = self._fits(value, node)
        return found

    def _fits(self, value: Any, node: SchemaNode) -> bool:
        words = node.keywords
        if not self.fits_here(value, node):
            return False
        if "$ref" in words and not self.fits(value, self._resolve(node)):
            return False
        for at in range(len(words.get("allOf", ()))):
            if not self.fits(value, node.at("allOf", at)):
                return False
        # Any number of options of `anyOf` may fit, and one of `oneOf`.
        return (
            self._num_fitting(value, node, "anyOf", 1) == 1
            and self._num_fitting(value, node, "oneOf", 2) == 1
        )

    def _num_fitting(self, value: Any, node: SchemaNode, word: str, most: int) -> int:
        """How many options of a keyword the value fits, counted up to `most`. Without the
        keyword one."""
        if word not in node.keywords:
            return 1
        num_fitting = 0
        for at in range(len(node.keywords[word])):
            num_fitting += self.fits(value, node.at(word, at))
            if num_fitting == most:
                break
        return num_fitting

    def fits_here(self, value: Any, node: SchemaNode) -> bool:
        """Return whether a value fits the schema, apart from its `$ref`, `allOf`, `anyOf` and
        `oneOf`, which become alternatives."""
        spend(4)
        words = node.keywords
        if not all(self._is_listed(value, word, node) for word in ("const", "enum")):
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

    def _is_listed(self, value: Any, word: str, node: SchemaNode) -> bool:
        """Whether `const` or `enum`, if the schema has it, lists the value."""
        if word not in node.keywords:
            return True
        listed = self._constants.get((word, node))
        if listed is None:
            values = constants_of({word: node.keywords[word]})
            listed = self._constants[word, node] = frozenset(map(self._text, values))
        return self._text(value) in listed

    def _text(self, value: Any) -> str:
        found = self._texts.get(id(value))
        if found is None:
            found = self._texts[id(value)] = canonical(value)
            spend(2 + len(found) // _CHARS_IN_A_STEP)
        return found

    def is_found(self, pattern: str, text: str) -> bool:
        """Return whether a pattern is found in a text; True for a pattern that is not regular."""
        spend()
        if pattern not in self._matchers:
            try:
                self._matchers[pattern] = Matcher(search_language(pattern))
            except NotRegular:
                self._matchers[pattern] = None
        matcher = self._matchers[pattern]
        try:
            return matcher is None or matcher.matches(text)
        except NotRegular:
            return True

    def _object_fits(self, value: dict[str, Any], node: SchemaNode) -> bool:
        words = node.keywords
        spend(len(words.get("required", ())))
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
        """Return the schemas that the member of this name must fit, all of them."""
        spend(2)
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
