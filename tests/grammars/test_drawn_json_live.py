"""Every text that the real engine generates under the grammar of a schema fits the schema.

The temperatures are so high that only the grammar guides the model. A validator that knows
nothing of grammars checks the texts.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.examples import FACTOR, examples
from tests.output.builders import object_of
from tests.output.tiny_chat import reference_model
from tests.tables import table
from vinery_serving.grammars.json_schema.nodes import SchemaError, Unenforceable
from vinery_serving.grammars.json_schema.strings import FORMATS, SHORT_FORMATS
from vinery_serving.grammars.json_schema.translator import json_grammar

pytestmark = pytest.mark.live

_NUM_TEXTS = 4
_MAX_TOKENS = 200
_MAX_SCHEMAS = 6
Schema = dict[str, Any]
# Texts of each grammar at its temperature, in one batch.
Draw = Callable[[Sequence[tuple[str, float]], int], list[list[str]]]

# -- The engine -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def draw() -> Draw:
    """Draws texts of the reference model under a grammar, without texts that a limit cuts."""
    model = reference_model()
    asked = "<|im_start|>user\nGive me JSON.<|im_end|>\n<|im_start|>assistant\n"
    prompt = model.assets.tokenizer.encode(asked)

    def config_of(grammar: str, temperature: float, seed: int) -> Any:
        config = model.new_config(_MAX_TOKENS, grammar=grammar)
        config.do_sample = True
        config.temperature = temperature
        config.rng_seed = seed
        return config

    def draw(grammars: Sequence[tuple[str, float]], seed: int) -> list[list[str]]:
        configs = [
            config_of(*each, seed * _NUM_TEXTS + index)
            for each in grammars
            for index in range(_NUM_TEXTS)
        ]
        ids = model.generate(prompt, configs)
        return [
            [
                model.assets.tokenizer.raw.decode(each)
                for each in ids[at : at + _NUM_TEXTS]
                if len(each) < _MAX_TOKENS
            ]
            for at in range(0, len(ids), _NUM_TEXTS)
        ]

    return draw


# -- Schemas ------------------------------------------------------------------------------

_NAMES = ["a", "b", "name", "age", "x y", "é", 'q"t', "a_longer_name"]
_PATTERNS = [
    "^[a-z]+$",
    r"^[A-Z]{2,4}-\d{3}$",
    "foo",
    "^a|b$",
    "^(ab|c)*$",
    r"^\S+ \S+$",
    r'["\\]',
    "^.{1,3}$",
    "^x?y*z{2,}$",
    "^[^a-z]{3}$",
]
_FORMATS = ["date", "date-time", "time", "email", "uuid", "ipv4", "ipv6"]
_FORMATS += ["uri", "hostname", "duration", "binary"]
_VALUES = ["a", 'é"\\\n', 1, 2.5, None, True, [1, {"a": None}], {"b": []}, "", "\u2028"]
_DEFS: Schema = {
    "list": object_of(
        v={"type": "integer"}, next={"anyOf": [{"$ref": "#/$defs/list"}, {"type": "null"}]}
    )
    | {"additionalProperties": False},
    "tree": object_of([], kids={"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}),
}


@st.composite
def some(draw: st.DrawFn, **words: st.SearchStrategy[Any]) -> Schema:
    """Some of these keywords, or none."""
    return {word: draw(values) for word, values in words.items() if draw(st.booleans())}


def joined(*parts: st.SearchStrategy[Schema] | Schema) -> st.SearchStrategy[Schema]:
    """All the keywords of several schemas in one."""
    strategies = [part if isinstance(part, st.SearchStrategy) else st.just(part) for part in parts]
    return st.tuples(*strategies).map(
        lambda each: {word: v for part in each for word, v in part.items()}
    )


@st.composite
def ranges(draw: st.DrawFn, kind: str, starts: Sequence[float], widths: Sequence[float]) -> Schema:
    start, width = draw(st.sampled_from(starts)), draw(st.sampled_from(widths))
    low = draw(st.sampled_from(["minimum", "exclusiveMinimum"]))
    high = draw(st.sampled_from(["maximum", "exclusiveMaximum"]))
    return {"type": kind, low: start, high: start + width}


leaves: st.SearchStrategy[Schema] = st.one_of(
    st.sampled_from(["string", "integer", "number", "boolean", "null"]).map(lambda k: {"type": k}),
    st.lists(st.sampled_from(_VALUES), min_size=1, max_size=4).map(lambda each: {"enum": each}),
    st.sampled_from(_VALUES).map(lambda value: {"const": value}),
    joined({"type": "string", "maxLength": 30}, some(minLength=st.integers(0, 5))),
    joined(
        {"type": "string"},
        st.sampled_from(_PATTERNS).map(lambda each: {"pattern": each}),
        some(maxLength=st.integers(6, 30)),
    ),
    joined(
        {"type": "string"},
        st.sampled_from(_FORMATS).map(lambda each: {"format": each}),
        some(minLength=st.just(1), maxLength=st.sampled_from([40, 300, 2083])),
    ),
    ranges("integer", [-200, -1, 0, 7, 1999], [3, 17, 1000, 123456]),
    ranges("number", [0, -1, 1.5, -3.25, 100, 0.001], [0.5, 1, 17.25, 1000]),
    joined(
        {"type": "number"},
        st.sampled_from([2, 5, 7, 0.5, 0.25, 10]).map(lambda each: {"multipleOf": each}),
        some(minimum=st.integers(-50, 50)),
    ),
    st.sampled_from(["list", "tree"]).map(lambda name: {"$ref": f"#/$defs/{name}"}),
    st.just({"type": ["string", "null"], "maxLength": 6}),
)


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    names = draw(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=4, unique=True))
    required = [name for name in names if draw(st.booleans())]
    others = draw(some(additionalProperties=st.one_of(st.booleans(), inner)))
    counts = draw(some(minProperties=st.just(1), maxProperties=st.integers(len(required) or 1, 5)))
    properties = {name: draw(inner) for name in names}
    return {"type": "object", "properties": properties, "required": required, **others, **counts}


def composed(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        objects(inner),
        objects(inner),
        joined(
            {"type": "array"},
            inner.map(lambda each: {"items": each}),
            some(minItems=st.integers(0, 2), maxItems=st.integers(2, 4)),
        ),
        joined(
            {"type": "array"},
            several.map(lambda each: {"prefixItems": each}),
            some(items=st.one_of(st.just(False), inner), minItems=st.integers(0, 1)),
        ),
        several.map(lambda each: {"anyOf": each}),
        several.map(lambda each: {"oneOf": each}),
        st.tuples(objects(inner), objects(inner)).map(lambda two: {"allOf": list(two)}),
        joined(
            {"type": "object"},
            inner.map(lambda each: {"additionalProperties": each}),
            some(propertyNames=st.just({"pattern": "^[a-z]+$"})),
        ),
        joined(
            {"type": "object"},
            st.tuples(inner, inner).map(
                lambda two: {"patternProperties": dict(zip(("^x", "y$"), two, strict=True))}
            ),
            some(additionalProperties=st.one_of(st.just(False), inner)),
        ),
    )


schemas = st.recursive(leaves, composed, max_leaves=6).map(lambda each: {**each, "$defs": _DEFS})

# -- The property -------------------------------------------------------------------------


def longest_blank(text: str) -> int:
    """The longest run of white space outside of strings."""
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    return max((len(run) for run in re.findall(r"\s+", outside)), default=0)


def enforced(schema: Schema) -> tuple[str, bool] | None:
    """The grammar of a schema, and whether it enforces the whole schema. None if no value fits,
    as `allOf` may contradict itself."""
    try:
        return json_grammar(schema, is_strict=True), True
    except Unenforceable:
        return json_grammar(schema), False
    except SchemaError as error:
        assert "allows no value" in error.reason
        return None


def fits_format(name: str, value: object) -> bool:
    """A short form has labels of hosts of any length, as RFC 3986 allows."""
    forms = (FORMATS[name], SHORT_FORMATS.get(name, FORMATS[name]))
    return not isinstance(value, str) or any(re.fullmatch(form, value) for form in forms)


# Formats are asserted: the branches of a `oneOf` may differ in nothing else.
FORMAT_CHECKER = jsonschema.FormatChecker(("date", "email", "ipv4", "ipv6", "uuid"))
for _name in FORMATS.keys() - FORMAT_CHECKER.checkers.keys():
    FORMAT_CHECKER.checks(_name)(partial(fits_format, _name))


# Schemas share a batch of the engine, which costs little more than a single schema.
@settings(
    max_examples=examples(10),
    # By day always the same: some schemas take the engine many seconds.
    derandomize=FACTOR == 1,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(
    asked=st.lists(
        st.tuples(schemas, st.sampled_from([1.0, 1.5, 2.5])), min_size=1, max_size=_MAX_SCHEMAS
    ),
    seed=st.integers(0, 10**6),
)
def test_generated_texts_fit_the_schema(draw, asked, seed):
    tasks = [
        (schema, temperature, *found)
        for schema, temperature in asked
        if (found := enforced(schema)) is not None
    ]
    assume(tasks)
    batch = draw([(grammar, temperature) for _, temperature, grammar, _ in tasks], seed)

    for (schema, _, _, is_whole), texts in zip(tasks, batch, strict=True):
        for value in map(json.loads, texts):
            # The answer to a schema that is not enforced is still JSON.
            if is_whole:
                jsonschema.Draft202012Validator(schema, format_checker=FORMAT_CHECKER).validate(
                    value
                )
        assert not is_whole or all(longest_blank(text) <= 1 for text in texts)


USUAL_AND_LESS_USUAL = json.loads((Path(__file__).parent / "usual_schemas.json").read_text())


@pytest.mark.smoke
@table("schema", [pytest.param(each, id=name) for name, each in USUAL_AND_LESS_USUAL.items()])
def test_small_answers_end(draw, schema):
    """All values of these schemas are short, so only endless blanks could reach the limit."""
    [texts] = draw([(json_grammar(schema, is_strict=True), 0.8)], 1)

    assert len(texts) == _NUM_TEXTS
    for text in texts:
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))


@table("least, most", [(0, 300), (300, 300), (257, 1000)])
def test_long_repetitions_are_counted(draw, least, most):
    schema = {"type": "array", "items": {"const": 1}, "minItems": least // 5, "maxItems": most // 5}

    [texts] = draw([(json_grammar(schema, is_compact=True), 1.0)], 3)

    assert texts
    for text in texts:
        assert least // 5 <= len(json.loads(text)) <= most // 5
