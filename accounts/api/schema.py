"""The OpenAPI document of the management API: what drf-spectacular cannot see by itself."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.openapi import AutoSchema

_VERBS: Final = {
    "list": "List {many}",
    "retrieve": "Read one of the {many}",
    "create": "Make {one}",
    "partial_update": "Change {one}",
    "destroy": "Remove {one}",
}
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string", "description": "What to change."},
                "type": {"type": "string"},
                "param": {"type": "string", "nullable": True},
                "code": {"type": "string", "nullable": True},
            },
        }
    },
}


class Schema(AutoSchema):
    """Takes summaries from the words of a view and parameters from its filters."""

    def get_tags(self) -> list[str]:
        """The second part of the path: keys, limits, ..."""
        return [self.path.strip("/").split("/")[1]]

    def get_summary(self) -> str | None:
        """A few words for each operation."""
        words = getattr(self.view, "words", None)
        verb = _VERBS.get(getattr(self.view, "action", ""))
        if words and verb:
            return verb.format(one=words[0], many=words[1])
        return (self._docstring() or "").split(". ")[0].strip(" .") or None

    def get_description(self) -> str:  # type: ignore[override]
        """What the view does, and what it is about."""
        about = (type(self.view).__doc__ or "").strip()
        return " ".join(f"{self._docstring() or ''}\n\n{about}".replace("    ", "").split(" "))

    def get_serializer_name(self, serializer: Any, direction: Any) -> str:
        """Without the last word of our classes' names, which clients have no use for."""
        return str(super().get_serializer_name(serializer, direction)).removesuffix("Body")

    def get_override_parameters(self) -> list[Any]:
        """The filters of lists."""
        if getattr(self.view, "action", "") == "list":
            return [getattr(self.view, "filters")]  # noqa: B009
        return list(getattr(self.view, "query", {}).get(self._name, ()))

    @property
    def _name(self) -> str:
        """Of the method that answers."""
        return getattr(self.view, "action", None) or str(self.method).lower()

    def _docstring(self) -> str | None:
        return getattr(getattr(self.view, self._name, None), "__doc__", None)


def complete(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Let every operation say how errors look, and every id in a path whose it is."""
    result["components"].setdefault("schemas", {})["Error"] = _ERROR
    error = {"$ref": "#/components/schemas/Error"}
    for path in result["paths"].values():
        for operation in path.values():
            operation["responses"]["default"] = {
                "description": "An error, as OpenAI words them.",
                "content": {"application/json": {"schema": error}},
            }
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    parameter["description"] = "Its id."
    return result
