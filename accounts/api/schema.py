"""The parts of the OpenAPI document that drf-spectacular cannot derive by itself."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.openapi import AutoSchema

_VERBS: Final = {
    "list": "List {many}",
    "retrieve": "Read {one}",
    "create": "Create {one}",
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
    """Summaries and parameters from the resource of a view."""

    def get_tags(self) -> list[str]:
        """Return the second part of the path: keys, limits, ..."""
        return [self.path.strip("/").split("/")[1]]

    def get_summary(self) -> str | None:
        """Return a short text for the operation."""
        resource = self._resource
        verb = _VERBS.get(getattr(self.view, "action", ""))
        if resource and verb:
            return verb.format(one=resource.one, many=resource.many)
        return (self._docstring() or "").split(". ")[0].strip(" .") or None

    def get_description(self) -> str:  # type: ignore[override]
        """Return what the operation does, and what the resource is."""
        about = (type(self.view).__doc__ or "").strip()
        return " ".join(f"{self._docstring() or ''}\n\n{about}".replace("    ", "").split(" "))

    def get_override_parameters(self) -> list[Any]:
        """Return the filters of a list."""
        if getattr(self.view, "action", "") == "list":
            return [self._resource.filters]
        return list(getattr(self.view, "query", {}).get(self._name, ()))

    @property
    def _resource(self) -> Any:
        return getattr(self.view, "resource", None)

    @property
    def _name(self) -> str:
        """The name of the method that responds."""
        return getattr(self.view, "action", None) or str(self.method).lower()

    def _docstring(self) -> str | None:
        return getattr(getattr(self.view, self._name, None), "__doc__", None)


def complete(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the schema of errors to every operation, and a description to every id in a path."""
    result["components"].setdefault("schemas", {})["Error"] = _ERROR
    error = {"$ref": "#/components/schemas/Error"}
    for path in result["paths"].values():
        for operation in path.values():
            operation["responses"]["default"] = {
                "description": "An error in the format of OpenAI.",
                "content": {"application/json": {"schema": error}},
            }
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    parameter["description"] = "Its id."
    return result
