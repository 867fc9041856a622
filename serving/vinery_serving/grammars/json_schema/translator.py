"""JSON schemas as grammars in which every value comes to an end.

The grammar allows at most one blank, after a colon or a comma, as in most JSON that models have
read. XGrammar never sees the schema: a keyword that is not translated here is refused, or ignored
if the client did not ask for `strict`.

Every answer fits the schema, but not every fitting value can be written. Properties come in the
order of the schema. Other properties come only where the schema describes them
(`additionalProperties`, `patternProperties`) or names none. A tuple has no more items than the
schema lists. A schema without a type means the types of its keywords. Bounded numbers have no
exponents. A string with both a pattern and a maximum length has at most 400 characters.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, islice
from typing import Any, Final

from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.grammars.grammar.ebnf import (
    EMPTY,
    NEVER,
    Expr,
    Ref,
    StructuralTag,
    Text,
    alt,
    grammar_tag,
    seq,
)
from vinery_serving.grammars.grammar.languages import (
    ANY,
    Language,
    Matcher,
    TooManyStates,
    complement,
    intersection,
    length_bounds,
    literal,
    times,
    union,
)
from vinery_serving.grammars.grammar.rules import (
    ANY_MEMBER,
    COLON,
    COMMA,
    RuleSet,
    TooManyRules,
    in_json,
    some_of,
)
from vinery_serving.grammars.json_schema.alternatives import (
    NUMBER_KEYWORDS,
    Alternative,
    SchemaDocument,
    allowed_types,
    at_all,
    constants,
    count_bounds,
    item_nodes,
    names_in,
    types_of,
    unnamed_member_nodes,
    words_of_type,
)
from vinery_serving.grammars.json_schema.check import check
from vinery_serving.grammars.json_schema.nodes import (
    SchemaError,
    SchemaNode,
    Steps,
    Unenforceable,
    Untranslatable,
    pattern_language,
)
from vinery_serving.grammars.json_schema.numbers import ALL_NUMBERS, NOT_NEGATIVE, number_range
from vinery_serving.grammars.json_schema.strings import string_demands, string_language

_MAX_STATES: Final = 10_000  # of all automata of a schema. Real schemas stay far below.
# The lengths tried for a string with both a pattern and a length. A host name has labels of at
# most 63 characters.
_MAX_COUNTED_CHARS: Final = (400, 63)
_MAX_NAME_PATTERNS: Final = 4  # each pattern doubles the number of rules for other members


def json_tag(
    schema: Any, *, param: str = "tools", is_strict: bool = False, is_compact: bool = False
) -> StructuralTag:
    """Return a tag of the JSON values that fit the schema in the field `param`. `is_compact`:
    without blanks. Raises `InvalidGrammar` for a schema that is invalid or allows no value. If
    `is_strict`, raises `UnsupportedParameter` for a keyword that a grammar cannot enforce. Both
    have the path of the keyword."""
    source = json.dumps(schema, ensure_ascii=False)
    try:
        return grammar_tag(_known_grammar(source, is_strict=is_strict, is_compact=is_compact))
    except SchemaError as error:
        raise _refused(error, param) from None


# Clients send the same schema with every request. A worker process that has grown is replaced.
@lru_cache(maxsize=256)
def _known_grammar(source: str, *, is_strict: bool, is_compact: bool) -> str:
    return json_grammar(json.loads(source), is_strict=is_strict, is_compact=is_compact)


def check_schema(schema: Any, *, param: str = "tools") -> None:
    """Check a schema from the field `param` that no grammar of JSON is for. Raises
    `InvalidGrammar` with the path of a keyword that is invalid or exceeds a limit."""
    try:
        _ = check(schema)
    except SchemaError as error:
        raise _refused(error, param) from None


def _refused(error: SchemaError, param: str) -> InvalidRequest:
    path = param + error.path
    if isinstance(error, Unenforceable):
        return UnsupportedParameter(
            f"`{path}` cannot be enforced: {error.reason}. Remove it, or do not set `strict`.",
            param=path,
        )
    return error.refusal(f"`{path}` {error.reason}.", param=path)


def json_grammar(schema: Any, *, is_strict: bool = False, is_compact: bool = False) -> str:
    """Return the grammar of `json_tag`, in XGrammar's EBNF. Raises `SchemaError`, also for a schema
    that is too large, and `Unenforceable` if `is_strict`. Otherwise ignores keywords that no
    grammar can enforce, as OpenAI's `strict: false` does."""
    try:
        unenforced = check(schema)
        translator = _Translator(schema, is_compact=is_compact)
        text = translator.text()
        if is_strict and not unenforced:
            unenforced = translator.unenforced()
    except RecursionError:
        raise Untranslatable((), "nests too deeply") from None
    except TooManyRules:
        reason = "is too large: use fewer options, properties, patterns and bounds"
        raise Untranslatable((), reason) from None
    if is_strict and unenforced:
        raise unenforced[0]
    return text


class _Translator:
    def __init__(self, document: Any, *, is_compact: bool) -> None:
        self._document = SchemaDocument(document)
        self._is_compact = is_compact
        self._rules = RuleSet(in_json, is_compact=is_compact, max_states=_MAX_STATES)
        self._names: dict[Alternative, str] = {}
        self._quoted_rules: dict[Language, Expr | None] = {}
        self._queue: deque[tuple[str, Alternative]] = deque()
        self._unenforced: list[Unenforceable] = []

    def text(self) -> str:
        root = self._value((self._document.root,))
        self._build()
        text = self._rules.text(root)
        if text is None:
            raise SchemaError((), "allows no value that comes to an end")
        return text

    def unenforced(self) -> list[Unenforceable]:
        """Return the keywords that the translation ignored, and options of a `oneOf` that a value
        may fit both: a grammar accepts such a value."""
        for node in self._document.one_of:
            options = [node.at("oneOf", at) for at in range(len(node.keywords["oneOf"]))]
            for left, right in islice(self._document.overlapping(options), 1):
                reason = f"options {left.steps[-1]} and {right.steps[-1]} may both fit: use anyOf"
                self._unenforced.append(Unenforceable((*node.steps, "oneOf"), reason))
        return self._unenforced

    def _value(self, nodes: Iterable[SchemaNode]) -> Expr:
        """The rule of the values that fit all these nodes."""
        followed = dict.fromkeys(self._document.followed(node) for node in nodes)
        key = tuple(node for node in followed if not node.is_free)
        if not key:
            return Ref("value")
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._rules.new_name()
            self._queue.append((name, key))
        return Ref(name)

    def _build(self) -> None:
        rules = self._rules.rules
        while self._queue:
            name, nodes = self._queue.popleft()
            rules[name] = alt(map(self._alternative, self._document.alternatives(nodes)))

    def _alternative(self, nodes: Alternative) -> Expr:
        if any(node.keywords.keys() & {"enum", "const"} for node in nodes):
            return self._constants(nodes)
        return alt(self._of_type(kind, nodes) for kind in allowed_types(nodes))

    def _of_type(self, kind: str, nodes: Alternative) -> Expr:
        match kind:
            case "object":
                return self._object(nodes)
            case "array":
                return self._array(nodes)
            case "string":
                return self._string(nodes)
            case "integer" | "number":
                return self._number(kind, nodes)
            case _:
                return Ref(kind)

    def _constants(self, nodes: Alternative) -> Expr:
        """Other keywords beside constants are not looked at."""
        listed = constants(nodes)
        for word in islice(words_of_type(nodes, set().union(*map(types_of, listed))), 1):
            self._ignore(nodes, word, "it stands beside enum or const")
        separators = (",", ":") if self._is_compact else (", ", ": ")
        return alt(
            Text(json.dumps(value, ensure_ascii=False, separators=separators)) for value in listed
        )

    def _object(self, nodes: Alternative) -> Expr:
        required = names_in(nodes, "required")
        names = names_in(nodes, "properties") | required
        allowed = self._allowed(names, nodes)
        if not required.keys() <= allowed.keys():
            return NEVER
        least, most = count_bounds(nodes, "Properties")
        other = self._other_member(nodes, names)
        if other is not None and least - len(required) > 1:
            self._ignore(nodes, "minProperties", "a grammar does not know which names are new")
        if not allowed and least <= 0 and most is None and other == ANY_MEMBER:
            return Ref("object")
        members = [(self._member(name, nodes), name in required) for name in allowed]
        return seq(Text("{"), self._members(members, other, least, most), Text("}"))

    def _member(self, name: str, nodes: Iterable[SchemaNode]) -> Expr:
        found = [each for node in nodes for each in self._document.member_nodes(node, name)]
        key = Text(json.dumps(name, ensure_ascii=False))
        return seq(key, COLON, self._value(found))

    def _members(
        self, members: Sequence[tuple[Expr, bool]], other: Expr | None, least: int, most: int | None
    ) -> Expr:
        """Build rules from the last member to the first. Each rule writes the rest of the object
        after a number of members. All numbers from `limit` on share a rule."""
        num_all = len(members) if most is None else min(len(members), most)
        limit = num_all if most is not None else min(num_all, max(1, least))
        num_required = sum(is_required for _, is_required in members)

        def counts(num_before: int) -> range:
            return range(min(num_required, limit), min(num_before, limit) + 1)

        rest = {count: self._others(other, count, least, most) for count in counts(len(members))}
        for num_before, (member, is_required) in reversed(list(enumerate(members))):
            num_required -= is_required
            longer = rest
            rest = {}
            for count in counts(num_before):
                following = NEVER if count >= num_all else longer[min(count + 1, limit)]
                expr = seq(EMPTY if count == 0 else COMMA, member, following)
                rest[count] = self._rules.named(
                    alt([expr] if is_required else [expr, longer[count]])
                )
        return rest[0]

    def _others(self, other: Expr | None, count: int, least: int, most: int | None) -> Expr:
        """Return the members without a name in the schema, after `count` named members."""
        # A count of 1 may mean "some": then the minimum is at most 1 and already reached.
        missing = max(0, least - count)
        num_left = None if most is None else most - count
        if other is None or num_left == 0:
            return EMPTY if missing == 0 else NEVER
        return self._rules.named(some_of(other, missing, num_left, is_first=count == 0))

    def _other_member(self, nodes: Alternative, names: Iterable[str]) -> Expr | None:
        """A member without a name in the schema; None if the object has no such members."""
        is_described = any(
            node.keywords.get("additionalProperties", False) is not False
            or node.keywords.get("patternProperties")
            for node in nodes
        )
        if not is_described and any(node.keywords.get("properties") for node in nodes):
            return None
        patterns = sorted(
            {each for node in nodes for each in node.keywords.get("patternProperties", ())}
        )
        name_nodes = at_all(nodes, "propertyNames")
        if not patterns and not name_nodes and not names:
            if not any("additionalProperties" in node.keywords for node in nodes):
                return ANY_MEMBER
            found = [each for node in nodes for each in self._document.member_nodes(node, "")]
            return seq(Ref("string"), COLON, self._value(found))
        if len(patterns) > _MAX_NAME_PATTERNS:
            self._ignore(nodes, "patternProperties", "there are more than four of them")
        free = complement(union(map(literal, names)))
        free = intersection(free, *(self._strings((each,)) for each in name_nodes))
        return alt(self._other_members(nodes, patterns[:_MAX_NAME_PATTERNS], free))

    def _other_members(
        self, nodes: Alternative, patterns: Sequence[str], free: Language
    ) -> Iterator[Expr]:
        """Yield the members for each set of patterns that a name can match without the other
        patterns."""
        languages = {each: pattern_language(each) for each in patterns}
        for size in range(len(patterns) + 1):
            for matched in combinations(patterns, size):
                found = unnamed_member_nodes(nodes, matched)
                if found is None:
                    continue
                names = intersection(
                    free,
                    *(languages[each] for each in matched),
                    *(complement(languages[each]) for each in patterns if each not in matched),
                )
                if (key := self._quoted(names)) is not None:
                    yield seq(key, COLON, self._value(found))

    def _allowed(self, names: Mapping[str, None], nodes: Alternative) -> Mapping[str, None]:
        """Return the names that `propertyNames` allows, and names that take too much work to
        check."""
        name_nodes = at_all(nodes, "propertyNames")
        if not names or not name_nodes:
            return names
        matcher = Matcher(self._strings(name_nodes))
        return {name: None for name in names if matcher.may_match(name)}

    def _strings(self, nodes: Alternative) -> Language:
        return union(map(string_language, self._document.alternatives(nodes)))

    def _array(self, nodes: Alternative) -> Expr:
        least, most = count_bounds(nodes, "Items")
        if most is not None and most < least:
            return NEVER
        num_listed = max((node.num_listed for node in nodes), default=0)
        further = [node.further_items() for node in nodes]
        is_open = num_listed == 0 or any(
            node is not None and node.schema is not False for node in further
        )
        if not num_listed and least == 0 and most is None and not item_nodes(nodes, 0):
            return Ref("array")
        num_first = num_listed if most is None else min(num_listed, most)
        rest: Expr = EMPTY
        if is_open or least > num_listed:
            item = self._value(item_nodes(nodes, num_listed))
            num_left = None if most is None else most - num_first
            missing = max(0, least - num_first)
            rest = some_of(item, missing, num_left, is_first=num_first == 0)
        for index in reversed(range(num_first)):
            item = self._value(item_nodes(nodes, index))
            longer = seq(EMPTY if index == 0 else COMMA, item, rest)
            rest = self._rules.named(alt([longer, EMPTY] if index >= least else [longer]))
        return seq(Text("["), rest, Text("]"))

    def _string(self, nodes: Alternative) -> Expr:
        least, most = count_bounds(nodes, "Length")
        if most is not None and most < least:
            return NEVER
        demands = string_demands(nodes)
        if demands:
            if any(_is_within(length_bounds(each), least, most) for each in demands):
                found = self._quoted(intersection(*demands))
            else:
                short = intersection(*string_demands(nodes, is_short=True))
                found = self._counted(short, least, most)
            if found is not None:
                return found
            self._ignore(nodes, "pattern", "its automaton is too large")
        elif (least, most) == (0, None):
            return Ref("string")
        return seq(Text('"'), self._rules.repeated(Ref("char"), least, most), Text('"'))

    def _counted(self, language: Language, least: int, most: int | None) -> Expr | None:
        for end in _MAX_COUNTED_CHARS:
            top = None if most is None else max(least, min(most, end))
            found = self._quoted(intersection(language, times(ANY, least, top)))
            if found is not None or top == most:
                return found
        return None

    def _quoted(self, language: Language) -> Expr | None:
        if language not in self._quoted_rules:
            try:
                quoted = seq(Text('"'), self._rules.of(language), Text('"'))
                self._quoted_rules[language] = self._rules.named(quoted)
            except TooManyStates:
                self._quoted_rules[language] = None
        return self._quoted_rules[language]

    def _number(self, kind: str, nodes: Alternative) -> Expr:
        wanted = number_range(nodes)
        if wanted == ALL_NUMBERS:
            return Ref(kind)
        if wanted == NOT_NEGATIVE:
            return Ref("natural" if kind == "integer" else "positive")
        try:
            return self._rules.of(wanted.integers() if kind == "integer" else wanted.numbers())
        except TooManyStates:
            given = {word for node in nodes for word in node.keywords}
            word = next(each for each in NUMBER_KEYWORDS if each in given)
            self._ignore(nodes, word, "its automaton is too large")
            return Ref(kind)

    def _ignore(self, nodes: Sequence[SchemaNode], word: str, reason: str) -> None:
        steps: Steps = next((node.steps for node in nodes if word in node.keywords), ())
        self._unenforced.append(Unenforceable((*steps, word), reason))


def _is_within(bounds: tuple[int, int | None], least: int, most: int | None) -> bool:
    low, top = bounds
    return low >= least and (most is None or (top is not None and top <= most))
