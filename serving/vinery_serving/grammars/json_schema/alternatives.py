"""Schema alternatives: sets of schema nodes that a value must fit all, without references and
options. References and `allOf` add nodes to an alternative; each option of `anyOf` and `oneOf`
makes a separate alternative.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from vinery_serving.core.errors import cited
from vinery_serving.grammars.grammar.languages import Matcher
from vinery_serving.grammars.json_schema.nodes import (
    TYPES,
    SchemaError,
    SchemaNode,
    Steps,
    Untranslatable,
    canonical,
    constants_of,
    pattern_language,
)

Alternative = tuple[SchemaNode, ...]  # in the order of the schema, each node once

_MAX_ALTERNATIVES: Final = 500  # how many alternatives a value may have. Real schemas have a few.
# No answer has more items or characters, so a larger maximum is no bound.
_MAX_COUNT: Final = 1_000_000

# Keywords that allow every value.
_ANNOTATIONS: Final = frozenset(
    (
        *("$comment", "$id", "$schema", "$defs", "definitions", "title", "description"),
        *("default", "deprecated", "examples", "readOnly", "writeOnly"),
    )
)
NUMBER_KEYWORDS: Final = (
    "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"
)  # fmt: skip
_KEYWORDS_BY_TYPE: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset(
        (
            *("properties", "required", "additionalProperties", "patternProperties"),
            *("propertyNames", "minProperties", "maxProperties"),
        )
    ),
    "array": frozenset(("items", "prefixItems", "minItems", "maxItems")),
    "string": frozenset(("pattern", "format", "minLength", "maxLength")),
    "number": frozenset(NUMBER_KEYWORDS),
}


class SchemaDocument:
    def __init__(self, document: Any) -> None:
        self.root = SchemaNode((), document)
        self.one_of: dict[SchemaNode, None] = {}  # all nodes with `oneOf` that became alternatives
        self._unfolded: dict[SchemaNode, list[Alternative]] = {}
        self._trail: set[SchemaNode] = set()  # the nodes that are being unfolded
        self._matchers: dict[str, Matcher] = {}

    def alternatives(self, nodes: Iterable[SchemaNode]) -> list[Alternative]:
        """Return the ways to fit all these nodes. Raises `SchemaError` for a reference that is
        wrong or leads back to itself, and for more than 500 combinations."""
        return _product(self._alternatives_of(node) for node in nodes)

    def _alternatives_of(self, node: SchemaNode) -> list[Alternative]:
        if isinstance(node.schema, bool):
            return [()] if node.schema else []
        if node not in self._unfolded:
            if node in self._trail:
                raise SchemaError(node.steps, "refers to itself without anything in between")
            self._trail.add(node)
            self._unfolded[node] = _product(self._choices(node))
            self._trail.remove(node)
            if "oneOf" in node.keywords:
                self.one_of[node] = None
        return self._unfolded[node]

    def _choices(self, node: SchemaNode) -> Iterator[list[Alternative]]:
        """The alternatives of each keyword that leads to other nodes, after the node itself."""
        words = node.keywords
        yield [(node,)]
        if "$ref" in words:
            yield self._alternatives_of(self.target(node))
        for at in range(len(words.get("allOf", ()))):
            yield self._alternatives_of(node.at("allOf", at))
        for word in ("anyOf", "oneOf"):
            if word in words:
                yield self._options(node, word)

    def _options(self, node: SchemaNode, word: str) -> list[Alternative]:
        found: list[Alternative] = []
        for at in range(len(node.keywords[word])):
            found += self._alternatives_of(node.at(word, at))
            _check_number(len(found))
        return found

    def target(self, node: SchemaNode) -> SchemaNode:
        reference, steps = node.keywords["$ref"], (*node.steps, "$ref")
        if not reference.startswith("#"):
            raise Untranslatable(steps, "must begin with #: other documents are not fetched")
        found = self.root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            is_index = isinstance(found.schema, list) and name.isdecimal()
            try:
                found = found.at(int(name) if is_index else name)
            except (LookupError, TypeError, ValueError):
                raise SchemaError(steps, f"points at nothing: {cited(reference)}") from None
        if found is self.root and reference not in ("#", "#/"):
            raise Untranslatable(steps, f"points at nothing: {cited(reference)}")
        if not isinstance(found.schema, dict | bool):
            raise SchemaError(steps, f"does not point at a schema: {cited(reference)}")
        return found

    def followed(self, node: SchemaNode) -> SchemaNode:
        """Return the target of a schema with nothing but a reference, so that all references
        to it share one rule."""
        trail = {node}
        while node.keywords.keys() - _ANNOTATIONS == {"$ref"}:
            target = self.target(node)
            if target in trail:
                return node
            trail.add(target)
            node = target
        return node

    def member_nodes(self, node: SchemaNode, name: str) -> list[SchemaNode]:
        """Return all schemas that the member of this name must fit."""
        words = node.keywords
        found = [node.at("properties", name)] if name in words.get("properties", {}) else []
        for pattern in words.get("patternProperties", ()):
            if pattern not in self._matchers:
                self._matchers[pattern] = Matcher(pattern_language(pattern))
            if self._matchers[pattern].may_match(name):
                found.append(node.at("patternProperties", pattern))
        if not found and "additionalProperties" in words:
            found.append(node.at("additionalProperties"))
        return found

    def overlapping(self, options: Sequence[SchemaNode]) -> Iterator[tuple[SchemaNode, SchemaNode]]:
        """Yield the pairs of options that the same value may fit, judged by types, constants, and
        the constants of required properties. Most unions differ in one of these."""
        marked = [(node, _marks(self.followed(node))) for node in options]
        for (left, ones), (right, others) in combinations(marked, 2):
            if all(ones[steps] & others[steps] for steps in ones.keys() & others.keys()):
                yield left, right


def _marks(node: SchemaNode) -> Mapping[Steps, frozenset[str]]:
    """Return the marks of a node: types, the texts of constants, and of the constants of each
    required property."""
    words = node.keywords
    kinds = ("number" if kind == "integer" else kind for kind in allowed_types((node,)))
    found: dict[Steps, frozenset[str]] = {("type",): frozenset(kinds)}
    properties = words.get("properties", {})
    named = [(("properties", each), properties.get(each)) for each in words.get("required", ())]
    for steps, schema in ((("const",), node.schema), *named):
        if listed := constants_of(schema):
            found[steps] = frozenset(map(canonical, listed))
    return found


def _product(choices: Iterable[list[Alternative]]) -> list[Alternative]:
    found: list[Alternative] = [()]
    for options in choices:
        _check_number(len(found) * len(options))
        found = [(*nodes, *option) for nodes in found for option in options]
    return list(dict.fromkeys(tuple(dict.fromkeys(nodes)) for nodes in found))


def _check_number(num_alternatives: int) -> None:
    if num_alternatives > _MAX_ALTERNATIVES:
        raise Untranslatable(
            (), f"has a value with more than {_MAX_ALTERNATIVES} combinations of options"
        )


def allowed_types(nodes: Sequence[SchemaNode]) -> list[str]:
    """Return the types that all nodes allow; without `type`, the types of the nodes' keywords.
    `integer` is left out where `number` is allowed."""
    given = [node.keywords["type"] for node in nodes if "type" in node.keywords]
    if given:
        sets = [{each} if isinstance(each, str) else set(each) for each in given]
        kinds = [
            kind
            for kind in TYPES
            if all(kind in each or (kind == "integer" and "number" in each) for each in sets)
        ]
    else:
        words = {word for node in nodes for word in node.keywords}
        kinds = [kind for kind in TYPES if words & _KEYWORDS_BY_TYPE.get(kind, frozenset())]
        kinds = kinds or list(TYPES)
    return [kind for kind in kinds if kind != "integer" or "number" not in kinds]


def constants(nodes: Sequence[SchemaNode]) -> list[Any]:
    """Return the values that are in the `const` and `enum` of all nodes, if present, and of their
    types."""
    lists = [
        constants_of({word: node.keywords[word]})
        for node in nodes
        for word in ("const", "enum")
        if word in node.keywords
    ]
    kinds = set(allowed_types([node for node in nodes if "type" in node.keywords]))
    known = frozenset.intersection(*(frozenset(map(canonical, each)) for each in lists))
    return [each for each in lists[0] if canonical(each) in known and kinds & types_of(each)]


def types_of(value: Any) -> set[str]:
    match value:
        case bool():
            return {"boolean"}
        case None:
            return {"null"}
        case str():
            return {"string"}
        case int() | float():
            return {"number", "integer"} if value == int(value) else {"number"}
        case list():
            return {"array"}
        case _:
            return {"object"}


def words_of_type(nodes: Sequence[SchemaNode], kinds: set[str]) -> Iterator[str]:
    """Yield the keywords of the nodes that limit values of these types."""
    for kind in sorted(kinds & _KEYWORDS_BY_TYPE.keys()):
        for node in nodes:
            yield from node.keywords.keys() & _KEYWORDS_BY_TYPE[kind]


def count_bounds(nodes: Sequence[SchemaNode], what: str) -> tuple[int, int | None]:
    """Return the narrowest bounds of `what` (Items, Length or Properties); None: no maximum. The
    minimum may be above the maximum: then no value fits. Raises `SchemaError` for a minimum above
    1,000,000."""
    minimum, maximum = f"min{what}", f"max{what}"
    least = max((int(node.keywords.get(minimum, 0)) for node in nodes), default=0)
    most = min((int(n.keywords[maximum]) for n in nodes if maximum in n.keywords), default=None)
    if least > _MAX_COUNT:
        node = next(each for each in nodes if each.keywords.get(minimum, 0) > _MAX_COUNT)
        raise Untranslatable((*node.steps, minimum), f"must be at most {_MAX_COUNT}")
    return least, None if most is None or most > _MAX_COUNT else most


def item_nodes(nodes: Sequence[SchemaNode], index: int) -> list[SchemaNode]:
    found = [node.item(index) for node in nodes]
    return [node for node in found if node is not None and not node.is_free]


def unnamed_member_nodes(
    nodes: Sequence[SchemaNode], matched: Sequence[str]
) -> list[SchemaNode] | None:
    """Return the schemas that a member must fit whose name is no property and matches these
    patterns. None if the grammar leaves such members out: additional members are written only where
    the schema describes them, or names no members."""
    found: list[SchemaNode] = []
    is_described = names_some = False
    for node in nodes:
        patterns = node.keywords.get("patternProperties", {})
        own = [node.at("patternProperties", each) for each in patterns if each in matched]
        if not own and "additionalProperties" in node.keywords:
            own = [node.at("additionalProperties")]
        found += own
        is_described = is_described or bool(own)
        names_some = names_some or bool(patterns or node.keywords.get("properties"))
    return found if is_described or not names_some else None


def names_in(nodes: Alternative, word: str) -> dict[str, None]:
    return dict.fromkeys(name for node in nodes for name in node.keywords.get(word, ()))


def at_all(nodes: Alternative, word: str) -> Alternative:
    return tuple(node.at(word) for node in nodes if word in node.keywords)
