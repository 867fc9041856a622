"""The wiring as a Django app: its system checks and the Celery application."""

from django.apps import AppConfig


class VineryConfig(AppConfig):
    """No models and no views: only what must happen when Django is ready."""

    name = "vinery"

    def ready(self) -> None:
        """Register the checks, and make our Celery app the one that tasks are sent by."""
        from vinery import celery, checks  # noqa: F401
