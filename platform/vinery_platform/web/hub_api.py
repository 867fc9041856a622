"""The part of the management API about models of a hub: `/api/models/search/`, `check/` and
`pull/`, and `/api/catalog/`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, get_args

from django.core.exceptions import PermissionDenied
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from vinery_accounts.api.views import ApiView, ResourceViewSet
from vinery_accounts.resources.fields import StrictSerializer
from vinery_serving.catalog import pulls
from vinery_serving.catalog.hub_questions import ask
from vinery_serving.catalog.job_resource import ModelJobSerializer
from vinery_serving.convert.options import Precision
from vinery_serving.hub.catalogue import CatalogueModel, catalogue
from vinery_serving.hub.client import Hub
from vinery_serving.hub.errors import PullFailed
from vinery_serving.hub.machine import Machine
from vinery_serving.hub.memory_need import CONTEXT_TOKENS
from vinery_serving.hub.search import search
from vinery_serving.hub.verdict import Answer

_NOT_ADMINISTRATOR = "Only an administrator of the whole platform may do this."


class RepositorySerializer(StrictSerializer):
    """A model of a hub."""

    repository = serializers.CharField(
        max_length=2048,
        help_text="On the hub, such as OpenVINO/Qwen3-8B-int4-ov, or a name of `/api/catalog/`.",
    )
    sha256 = serializers.RegexField(
        r"^[0-9a-f]{64}\Z", default=None, allow_null=True, help_text="Of the archive of a URL."
    )
    revision = serializers.CharField(
        max_length=200, default=None, allow_null=True, help_text="A branch, tag or commit."
    )
    include = serializers.ListField(
        child=serializers.CharField(max_length=200),
        default=list,
        max_length=50,
        help_text="Only files that match one of these, such as *.json; empty: what is needed.",
    )
    device = serializers.CharField(max_length=64, default="CPU", help_text="Where it should run.")


class CheckSerializer(RepositorySerializer):
    """A model of a hub, and how it would be used."""

    context = serializers.IntegerField(  # type: ignore[assignment]
        default=CONTEXT_TOKENS,
        min_value=1,
        max_value=1 << 24,
        help_text="Tokens of one conversation that there should be memory for.",
    )


class PullSerializer(RepositorySerializer):
    """A model of a hub, and what becomes of it."""

    name = serializers.CharField(
        max_length=128,
        default=None,
        allow_null=True,
        help_text="The model that gets the files; null: that of the repository. A new name adds a "
        "model.",
    )
    options = serializers.DictField(default=dict, help_text="Engine options of a new model.")
    precision = serializers.ChoiceField(
        choices=get_args(Precision),
        default=None,
        allow_null=True,
        help_text="To which a checkpoint is converted after its pull; null: that of the check.",
    )
    is_loaded = serializers.BooleanField(
        default=True, help_text="Whether a new model is loaded then."
    )


class SearchSerializer(StrictSerializer):
    """Words to search a hub for."""

    text = serializers.CharField(max_length=200)
    only_openvino = serializers.BooleanField(
        default=True, help_text="Only models that need no conversion."
    )


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
    is_corrected = serializers.BooleanField(
        help_text="Whether the overhead is that of engines which were measured on this server."
    )


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


@contextmanager
def _sentences() -> Iterator[None]:
    """Answer 400 with the sentence of what a hub refuses, or what it does not have."""
    try:
        yield
    except PullFailed as error:
        raise serializers.ValidationError({"repository": [str(error)]}) from None


def _values(
    view: ResourceViewSet, request: Request, serializer: type[StrictSerializer]
) -> Mapping[str, Any]:
    if not view.access.is_superuser:
        raise PermissionDenied(_NOT_ADMINISTRATOR)
    body = serializer(data=request.data, context=view.get_serializer_context())
    body.is_valid(raise_exception=True)
    values: Mapping[str, Any] = body.validated_data
    return values


@extend_schema(request=SearchSerializer, responses=FoundListSerializer)
@action(
    detail=False,
    methods=["post"],
    pagination_class=None,
    filter_backends=[],
    url_path="search",
    url_name="search",
)
def search_hub(self: ResourceViewSet, request: Request) -> Response:
    """Search a hub for models by words. The most downloaded come first."""
    values = _values(self, request, SearchSerializer)
    text, only_openvino = values["text"], values["only_openvino"]
    with _sentences():
        found = ask(lambda: search(Hub.of_environment(), text, only_openvino=only_openvino))
    return Response(FoundListSerializer({"object": "list", "data": found}).data)


@extend_schema(request=CheckSerializer, responses=LoadVerdictSerializer)
@action(detail=False, methods=["post"], pagination_class=None, filter_backends=[])
def check(self: ResourceViewSet, request: Request) -> Response:
    """Answer whether a model of a hub will load here, before its weights are fetched."""
    values = _values(self, request, CheckSerializer)
    machine = pulls.machine_for(values["device"])
    with _sentences():
        judged = ask(
            lambda: pulls.judge(
                values["repository"],
                values["revision"],
                values["include"],
                machine=machine,
                context=values["context"],
                sha256=values["sha256"],
            )
        )
        if judged.verdict is None:
            raise PullFailed("An archive can be judged only when it is unpacked: pull it.")
    return Response(LoadVerdictSerializer(judged.verdict).data)


@extend_schema(request=PullSerializer, responses={201: ModelJobSerializer})
@action(detail=False, methods=["post"], pagination_class=None, filter_backends=[])
def pull(self: ResourceViewSet, request: Request) -> Response:
    """Pull a model from a hub, and serve it. The answer is the job, which `/api/model-jobs/` shows,
    pauses, resumes and cancels."""
    values = _values(self, request, PullSerializer)
    machine = pulls.machine_for(values["device"])
    with _sentences():
        judged = ask(
            lambda: pulls.judge(
                values["repository"],
                values["revision"],
                values["include"],
                machine=machine,
                sha256=values["sha256"],
            )
        )
    job = pulls.begin(
        judged,
        values["name"],
        device=values["device"],
        options=values["options"],
        load=values["is_loaded"],
        precision=values["precision"],
    )
    return Response(ModelJobSerializer(job).data, status=201)


class Catalogue(ApiView):
    """Ready-made models. They are for administrators of the platform."""

    @extend_schema(responses=CatalogueSerializer)
    def get(self, request: Request) -> Response:
        """List the models that can be pulled by name, and whether they fit this server."""
        if not self.access.is_superuser:
            raise PermissionDenied(_NOT_ADMINISTRATOR)
        machine = pulls.machine_for("CPU")
        body = {
            "object": "list",
            "data": [_Entry(each, machine) for each in catalogue()],
        }
        return Response(CatalogueSerializer(body).data)


class _Entry:
    """A model of the catalogue, and whether it fits."""

    def __init__(self, model: CatalogueModel, machine: Machine) -> None:
        self._model, self.need, self.fits = model, model.need_on(machine), model.fits(machine)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
