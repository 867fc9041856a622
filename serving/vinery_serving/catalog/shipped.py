"""The models that ship with Vinery. Their names do for folders, in a clone and in a wheel."""

from pathlib import Path

from django.conf import settings


def shipped_models() -> tuple[str, ...]:
    """Return the names of all of them in order."""
    files = Path(settings.VINERY_MODELS_DIR).glob("*/config.json")
    return tuple(sorted(each.parent.name for each in files))


def shipped_folder(name: str) -> Path | None:
    """Return the folder of a model that ships with Vinery; None for any other name."""
    return Path(settings.VINERY_MODELS_DIR) / name if name in shipped_models() else None
