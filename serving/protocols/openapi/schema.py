"""From the wire models to JSON schemas, as the document shows them.

A field may be null wherever it may be absent, so that is said once, by the type. Members of
a union are told apart by a role or a type, which the models leave to the union's tags; and
some members exist only to refuse, so they are no part of what may be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import CoreSchema, core_schema

from serving.core.request import Endpoint
from serving.protocols.refused import REFUSED, refusal

Schema = dict[str, Any]
PREFIX: Final = "#/components/schemas/"

# The tags of members that exist to refuse.
_NEVER: Final = ("<unknown>", "<custom>", "<other>")
# The tags of members that the shape of a value tells apart.
_SHAPES: Final = ("<plain>", "<message>", "<messages>", "<ids>", "<nested>", "<flat>", "<hosted>")
_ROLES: Final = ("<assistant>", "<tool>", "<function>")


class _Generator(GenerateJsonSchema):
    """Leaves out titles and empty defaults, which say nothing."""

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        members = [
            self._member(str(tag), choice)
            for tag, choice in schema["choices"].items()
            if tag not in _NEVER
        ]
        return {"anyOf": members}

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def _member(self, tag: str, choice: CoreSchema) -> JsonSchemaValue:
        inner = self.generate_inner(choice)
        if tag in _SHAPES or not tag.startswith("<"):
            return inner
        mark = "role" if tag in _ROLES else "type"
        return {
            "allOf": [inner],
            "properties": {mark: {"const": tag[1:-1]}},
            "required": [mark],
        }


def component_schemas(models: Iterable[type[BaseModel]]) -> dict[str, Schema]:
    """The schemas of these models and of all that they are made of, by name."""
    _, definitions = models_json_schema(
        [(model, "validation") for model in models],
        ref_template=PREFIX + "{model}",
        schema_generator=_Generator,
    )
    schemas: dict[str, Schema] = definitions["$defs"]
    for schema in schemas.values():
        schema.pop("title", None)
        _flow(schema)
    return schemas


def add_refused(schema: Schema, endpoint: Endpoint) -> None:
    """Write into the schema of a body what the endpoint refuses, and why."""
    for name, harmless in REFUSED[endpoint].items():
        sentence = refusal(endpoint, name)
        schema["properties"][name] = {
            "enum": [None, *harmless],
            "description": f"Refused. {sentence}",
            "x-refused": sentence,
        }


def describe(
    schemas: Mapping[str, Schema], name: str, meanings: Mapping[str, str], place: str = ""
) -> None:
    """Write what each field does into the schema `name`, and into those of its objects."""
    described = schemas[name]
    # Beside an object that is described, some fields take others, which are not.
    for field, schema in described.get("anyOf", [described])[0]["properties"].items():
        path = f"{place}{field}"
        inner = _reference(schema)
        if inner is not None and any(known.startswith(f"{path}.") for known in meanings):
            describe(schemas, inner, meanings, f"{path}.")
        if path in meanings and "x-refused" not in schema:
            schema["description"] = meanings[path]


def paths(model: type[BaseModel], place: str = "") -> Iterable[str]:
    """The names of a model's fields, and of those of the objects in it: `text.format.name`."""
    for name, field in model.model_fields.items():
        path = f"{place}{field.alias or name}"
        if name == "tag":  # the wire has no such field: it holds a form that is not read yet
            continue
        yield path
        inner = _model_of(field.annotation)
        if inner is not None:
            yield from paths(inner, f"{path}.")


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The model in `Model` or in `Model | None`."""
    options = getattr(annotation, "__args__", (annotation,))
    models = [each for each in options if isinstance(each, type) and issubclass(each, BaseModel)]
    is_object = len(models) == 1 and getattr(annotation, "__origin__", None) is None
    return models[0] if is_object else None


def _reference(schema: Schema) -> str | None:
    options = schema.get("anyOf", [schema])
    names = [each["$ref"].removeprefix(PREFIX) for each in options if "$ref" in each]
    return names[0] if len(names) == 1 else None


def _flow(schema: Any) -> None:
    """Docstrings have line breaks where the code has them."""
    if isinstance(schema, dict):
        if isinstance(schema.get("description"), str):
            schema["description"] = " ".join(schema["description"].split())
        for each in schema.values():
            _flow(each)
    elif isinstance(schema, list):
        for each in schema:
            _flow(each)
