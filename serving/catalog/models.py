"""What is served, and how its engines are."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models


class ServedModel(models.Model):
    """A model that clients may name. Only administrators write here; what the node finds
    out about its engine is in `EngineStatus`."""

    name = models.CharField(
        max_length=128,
        unique=True,
        validators=[
            RegexValidator(
                r"^[A-Za-z0-9][A-Za-z0-9._:/-]*\Z",
                "Use letters, digits and . _ : / - only, beginning with a letter or digit.",
            )
        ],
        help_text="The name that clients send as `model`.",
    )
    folder = models.CharField(
        max_length=1024, help_text="Absolute path of the folder that holds openvino_model.xml."
    )
    device = models.CharField(max_length=64, default="CPU", help_text="CPU, GPU, GPU.1, NPU ...")
    options = models.JSONField(
        default=dict, blank=True, help_text="Engine options, such as {'max_running': 16}."
    )
    is_loaded = models.BooleanField(
        "load", default=True, help_text="Whether an engine should be running for it."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Options and folder must be usable: found here, not by the engine at its start."""
        from serving.catalog.registry import check_folder, check_options

        problems: dict[str, list[str]] = {}
        try:
            check_options(self.options)
        except ValidationError as error:
            problems |= error.message_dict
        try:
            if self.folder:  # an empty one is found by its field
                check_folder(self.folder)
        except ValidationError as error:
            problems["folder"] = error.messages
        if problems:
            raise ValidationError(problems)


class EngineState(models.TextChoices):
    """What the node last saw of a model's engine."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class EngineStatus(models.Model):
    """Written by the node alone."""

    model = models.OneToOneField(ServedModel, on_delete=models.CASCADE, related_name="engine")
    state = models.CharField(
        max_length=16, choices=EngineState.choices, default=EngineState.UNLOADED
    )
    last_error = models.TextField(blank=True)
    pid = models.PositiveIntegerField(null=True, blank=True)
    num_restarts = models.PositiveIntegerField(default=0)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "engine statuses"

    def __str__(self) -> str:
        return f"{self.model_id}: {self.state}"
