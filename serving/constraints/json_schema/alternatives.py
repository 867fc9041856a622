"""Schema alternatives: what a value must fit, without references and options.

An alternative is a set of schema nodes that a value must fit all. References and `allOf` add
nodes to an alternative; each option of `anyOf` and `oneOf` makes an alternative of its own.
The functions below read from an alternative what it demands of values of one type.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from serving.constraints.json_schema.nodes import (
    TYPES,
    SchemaError,
    SchemaNode,
    constants_of,
    equal,
)

# In the order of the schema, each node once.
Alternative = tuple[SchemaNode, ...]

# How many alternatives a value may have. Real schemas have a few.
_MAX_ALTERNATIVES: Final = 500
# No answer has more items or characters, so a larger maximum is no bound.
_MAX_COUNT: Final = 1_000_000

# Keywords that allow every value.
_ANNOTATIONS: Final = frozenset(
    (
        *("$comment", "$id", "$schema", "$defs", "definitions", "title", "description"),
        *("default", "deprecated", "examples", "readOnly", "writeOnly"),
    )
)
_KEYWORDS_BY_TYPE: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset(
        (
            *("properties", "required", "additionalProperties", "patternProperties"),
            *("propertyNames", "minProperties", "maxProperties"),
        )
    ),
    "array": frozenset(("items", "prefixItems", "minItems", "maxItems")),
    "string": frozenset(("pattern", "format", "minLength", "maxLength")),
    "number": frozenset(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    ),
}


class SchemaDocument:
    """A document whose references are followed inside it."""

    def __init__(self, document: Any) -> None:
        self.root = SchemaNode((), document)
        # All nodes with `oneOf` that became alternatives.
        self.one_of: dict[SchemaNode, None] = {}

    def alternatives(self, nodes: Iterable[SchemaNode]) -> list[Alternative]:
        """Return the ways to fit all these nodes.

        Raises `SchemaError` for a reference that is wrong or leads back to itself, and for
        more than 500 combinations.
        """
        return self._product(self._unfolded(node, ()) for node in nodes)

    def _unfolded(self, node: SchemaNode, trail: Alternative) -> list[Alternative]:
        if isinstance(node.schema, bool):
            return [()] if node.schema else []
        if node in trail:
            raise SchemaError(node.steps, "refers to itself without anything in between")
        trail, words = (*trail, node), node.keywords
        choices: list[list[Alternative]] = [[(node,)]]
        if "$ref" in words:
            choices.append(self._unfolded(self.target(node), trail))
        for at in range(len(words.get("allOf", ()))):
            choices.append(self._unfolded(node.at("allOf", at), trail))
        for word in ("anyOf", "oneOf"):
            if word in words:
                options = [node.at(word, at) for at in range(len(words[word]))]
                choices.append([each for one in options for each in self._unfolded(one, trail)])
        if "oneOf" in words:
            self.one_of[node] = None
        return self._product(choices)

    def _product(self, choices: Iterable[list[Alternative]]) -> list[Alternative]:
        found: list[Alternative] = [()]
        for options in choices:
            if len(found) * len(options) > _MAX_ALTERNATIVES:
                raise SchemaError(
                    (), f"has a value with more than {_MAX_ALTERNATIVES} combinations of options"
                )
            found = [(*nodes, *option) for nodes in found for option in options]
        return list(dict.fromkeys(tuple(dict.fromkeys(nodes)) for nodes in found))

    def target(self, node: SchemaNode) -> SchemaNode:
        """Return the target of a node's `$ref`. Raises `SchemaError`."""
        reference, steps = node.keywords["$ref"], (*node.steps, "$ref")
        if not reference.startswith("#"):
            raise SchemaError(steps, "must begin with #: other documents are not fetched")
        found = self.root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            is_index = isinstance(found.schema, list) and name.isdecimal()
            try:
                found = found.at(int(name) if is_index else name)
            except (KeyError, IndexError, TypeError):
                raise SchemaError(steps, f"points at nothing: {reference}") from None
        if found is self.root and reference not in ("#", "#/"):
            raise SchemaError(steps, f"points at nothing: {reference}")
        if not isinstance(found.schema, dict | bool):
            raise SchemaError(steps, f"does not point at a schema: {reference}")
        return found

    def followed(self, node: SchemaNode) -> SchemaNode:
        """Return the target of a schema with nothing but a reference, so that all references
        to it share one rule."""
        seen = {node}
        while (
            node.keywords.keys() - _ANNOTATIONS == {"$ref"}
            and (target := self.target(node)) not in seen
        ):
            node = target
            seen.add(node)
        return node

    def are_disjoint(self, left: SchemaNode, right: SchemaNode) -> bool:
        """Return whether no value fits both, as far as their types and the constants of their
        required properties show. Most unions differ in one of these."""
        left, right = self.followed(left), self.followed(right)
        if not _wide_types(left) & _wide_types(right):
            return True
        for name in {*left.keywords.get("required", ())} & {*right.keywords.get("required", ())}:
            ones, others = (
                constants_of(node.keywords.get("properties", {}).get(name))
                for node in (left, right)
            )
            is_shared = any(equal(one, other) for one in ones for other in others)
            if ones and others and not is_shared:
                return True
        return False


def _wide_types(node: SchemaNode) -> set[str]:
    return {"number" if kind == "integer" else kind for kind in types_of((node,))}


def types_of(nodes: Sequence[SchemaNode]) -> list[str]:
    """Return the types that all nodes allow; without `type`, those that their keywords are
    about. `integer` is left out where `number` is allowed."""
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


def count_bounds(nodes: Sequence[SchemaNode], what: str) -> tuple[int, int | None]:
    """Return the narrowest bounds of `what` (Items, Length or Properties); None: no maximum.

    The minimum may be above the maximum: then no value fits. Raises `SchemaError` for a minimum
    above 1,000,000.
    """
    minimum, maximum = f"min{what}", f"max{what}"
    least = max((int(node.keywords.get(minimum, 0)) for node in nodes), default=0)
    most = min((int(n.keywords[maximum]) for n in nodes if maximum in n.keywords), default=None)
    if least > _MAX_COUNT:
        node = next(each for each in nodes if each.keywords.get(minimum, 0) > _MAX_COUNT)
        raise SchemaError((*node.steps, minimum), f"must be at most {_MAX_COUNT}")
    return least, None if most is None or most > _MAX_COUNT else most


def item_nodes(nodes: Sequence[SchemaNode], index: int) -> list[SchemaNode]:
    """Return the schemas that the item at an index must fit."""
    found = [node.item(index) for node in nodes]
    return [node for node in found if node is not None and not node.is_free]


def unnamed_member_nodes(
    nodes: Sequence[SchemaNode], matched: Sequence[str]
) -> list[SchemaNode] | None:
    """Return the schemas that a member must fit whose name is no property and matches these
    patterns. None if the grammar leaves such members out: it writes additional members only
    where the schema describes them, or names none."""
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
