"""Answers of the management API about hubs and the catalogue, and the actions that ask hubs."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final, TypeVar

from django.core.exceptions import ValidationError
from rest_framework import serializers

from vinery_accounts.access.access import Access
from vinery_accounts.resources.base import RowAction, require_administrator
from vinery_accounts.resources.fields import serializer_of
from vinery_serving.models import job_requests
from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.verdict import Answer
from vinery_serving.models.job_resource import ModelJobSerializer

ResultT = TypeVar("ResultT")


class FoundSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """A repository that matches."""

    name = serializers.CharField()
    downloads = serializers.IntegerField(help_text="In the last month.")
    tag = serializers.CharField(help_text="The hub's name of the task; empty: unknown.")
    is_openvino = serializers.BooleanField(help_text="Whether it needs no conversion.")


class FoundListSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """The most downloaded repositories that match."""

    object = serializers.ChoiceField(choices=["list"])
    data = FoundSerializer(many=True)  # type: ignore[assignment]


class MemorySerializer(serializers.Serializer):  # type: ignore[type-arg]
    """How much memory a model needs, by parts."""

    weights_bytes = serializers.IntegerField()
    kv_cache_bytes = serializers.IntegerField()
    overhead_bytes = serializers.IntegerField()
    total_bytes = serializers.IntegerField()
    context_tokens = serializers.IntegerField(help_text="For which the KV cache is.")


class MachineSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """What the server has for a model."""

    device = serializers.CharField()
    memory_bytes = serializers.IntegerField()
    free_disk_bytes = serializers.IntegerField()


class LoadVerdictSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """Whether a model will load, why, and the figures behind it."""

    answer = serializers.ChoiceField(choices=[each.value for each in Answer])
    reasons = serializers.ListField(child=serializers.CharField())
    repository = serializers.CharField()
    commit = serializers.CharField()
    format = serializers.CharField()
    task = serializers.CharField()
    architecture = serializers.CharField(allow_null=True)
    precision = serializers.CharField(allow_null=True)
    licence = serializers.CharField(allow_null=True)
    size_bytes = serializers.IntegerField(help_text="What would be fetched.")
    memory = MemorySerializer(source="need")
    machine = MachineSerializer()


class CatalogueModelSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """A ready-made model."""

    name = serializers.CharField()
    repository = serializers.CharField(help_text="Empty: it ships with Vinery.")
    task = serializers.CharField()
    parameters = serializers.FloatField(help_text="In billions.")
    precision = serializers.CharField()
    size_bytes = serializers.IntegerField()
    licence = serializers.CharField()
    context = serializers.IntegerField(  # type: ignore[assignment]
        help_text="The most tokens of a conversation."
    )
    abilities = serializers.ListField(child=serializers.CharField())
    memory = MemorySerializer(source="need")
    fits = serializers.BooleanField(help_text="Whether this server has memory and disk for it.")


class CatalogueSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """The catalogue."""

    object = serializers.ChoiceField(choices=["list"])
    data = CatalogueModelSerializer(many=True)  # type: ignore[assignment]


def catalogue_body() -> dict[str, Any]:
    from vinery_serving.models import pulls
    from vinery_serving.models.hub.catalogue import catalogue

    machine = pulls.machine_for("CPU")
    data = [
        asdict(each)
        | {"size_bytes": each.size_bytes, "need": each.need, "fits": each.fits(machine)}
        for each in catalogue()
    ]
    serializer: Any = CatalogueSerializer({"object": "list", "data": data})
    return dict(serializer.data)


def _answered(ask: Callable[[], ResultT]) -> ResultT:
    try:
        return ask()
    except PullFailed as error:
        raise ValidationError({"repository": [str(error)]}) from None


def _search(access: Access, **values: Any) -> dict[str, Any]:
    require_administrator(access)
    from vinery_serving.models import pulls
    from vinery_serving.models.hub.client import Hub, search

    asked = job_requests.Search(**values)
    found = _answered(
        lambda: pulls.ask(
            lambda: search(Hub.of_environment(), asked.text, only_openvino=asked.only_openvino)
        )
    )
    return {"object": "list", "data": found}


def _check(access: Access, **values: Any) -> Any:
    require_administrator(access)
    from vinery_serving.models import pulls

    asked = job_requests.Check(**values)
    verdict = _answered(lambda: pulls.look(asked, asked.context)).verdict
    if verdict is None:
        text = "An archive can be judged only when it is unpacked: pull it."
        raise ValidationError({"repository": [text]})
    return verdict


def _pull(access: Access, **values: Any) -> Any:
    require_administrator(access)
    from vinery_serving.models import pulls

    return _answered(lambda: pulls.pull(job_requests.Pull(**values)))


def _convert(access: Access, **values: Any) -> Any:
    require_administrator(access)
    return job_requests.convert(job_requests.Conversion(**values))


ACTIONS: Final = (
    RowAction(
        "search",
        _search,
        "Search a hub for models by words. The most downloaded come first.",
        serializer=serializer_of(job_requests.Search),
        answer=FoundListSerializer,
        is_of_list=True,
    ),
    RowAction(
        "check",
        _check,
        "Report whether a model of a hub will load here, before its weights are fetched. The exit "
        "status of the command is 1 if it will not.",
        serializer=serializer_of(job_requests.Check),
        answer=LoadVerdictSerializer,
        is_of_list=True,
    ),
    RowAction(
        "pull",
        _pull,
        "Pull a model from a hub, and serve it. A checkpoint is converted then. A pull that was "
        "interrupted goes on where it was. HF_ENDPOINT names another hub, and HF_TOKEN is for "
        "private and gated models. The answer of the API is the job, which `/api/model-jobs/` "
        "shows, pauses, resumes and cancels.",
        serializer=serializer_of(job_requests.Pull),
        answer=ModelJobSerializer,
        status=201,
        is_of_list=True,
    ),
    RowAction(
        "convert",
        _convert,
        "Convert a checkpoint of Hugging Face, such as safetensors, and serve the result. The "
        "environment that this needs is made first, if it is missing: about 2 GB. `vinery convert "
        "architectures` lists what can be converted. The answer of the API is the job, which "
        "`/api/model-jobs/` shows.",
        serializer=serializer_of(job_requests.Conversion),
        answer=ModelJobSerializer,
        status=201,
        is_of_list=True,
    ),
)
