"""The part of the management API about served models, devices and media rules: `/api/models/`,
`/api/devices/`, `/api/media-rules/` and what belongs to them.

These tables belong to serving, and the views to accounts: here they meet.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

from asgiref.sync import async_to_sync
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.urls import URLPattern, URLResolver, re_path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from vinery_accounts.api.views import ApiView, ResourceViewSet, viewset_of
from vinery_accounts.models import Organization, Project
from vinery_accounts.resources.fields import StrictSerializer, VisibleRelatedField
from vinery_platform.web import hub_api
from vinery_serving.allowlist import resource as media
from vinery_serving.allowlist import tester
from vinery_serving.catalog import conversions, devices
from vinery_serving.catalog.alias_resource import MODEL_ALIASES
from vinery_serving.catalog.engine_log import engine_log
from vinery_serving.catalog.engine_status import ShownState
from vinery_serving.catalog.engine_work import EngineWork
from vinery_serving.catalog.job_resource import MODEL_EVENTS, MODEL_JOBS, ModelJobSerializer
from vinery_serving.catalog.models import ServedModel
from vinery_serving.catalog.resource import MODELS, EngineSerializer
from vinery_serving.catalog.speed_resource import SPEED_RESULTS
from vinery_serving.runtime.runtime import runtime
from vinery_serving.transport.messages import EngineStats


class ModelStateSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """What has become of a model, for programs that wait for it."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=ShownState.choices, source="shown_state")
    engine = EngineSerializer(source="status")
    log = serializers.SerializerMethodField(
        help_text="The last lines that the engine has logged on this host, the oldest first; null: "
        "there are none."
    )

    def get_log(self, model: ServedModel) -> list[str] | None:
        return engine_log(model.name)


class MediaTestSerializer(StrictSerializer):
    """A URL or a path, and the caller of the test."""

    what = serializers.CharField(
        max_length=8192, help_text="A URL or a path, as a client would send it."
    )
    organization = VisibleRelatedField(
        Organization,
        required=False,
        allow_null=True,
        help_text="For a request of this organisation; null without a project: of a caller "
        "without a key.",
    )
    project = VisibleRelatedField(
        Project,
        "organization",
        required=False,
        allow_null=True,
        help_text="For a request of this project.",
    )
    model = serializers.CharField(
        required=False,
        allow_null=True,
        max_length=128,
        help_text="The loaded vision model that sees it; by default the first one.",
    )

    def validate_model(self, name: str | None) -> str | None:
        """Return the name. Raises ValidationError unless it is that of a loaded vision model."""
        try:
            tester.choose(name)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from None
        return name


class MediaStepSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """One check of a URL or a file."""

    name = serializers.CharField()
    is_ok = serializers.BooleanField(
        allow_null=True, help_text="null: it neither allows nor refuses."
    )
    text = serializers.CharField()


class MediaVerdictSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """What would happen to a URL or a file, up to the first step that refuses it."""

    is_allowed = serializers.BooleanField()
    steps = MediaStepSerializer(many=True)


@extend_schema(request=MediaTestSerializer, responses=MediaVerdictSerializer)
@action(detail=False, methods=["post"], pagination_class=None, filter_backends=[])
def test(self: ResourceViewSet, request: Request) -> Response:
    """Test a URL or a path, step by step, as a request would fetch or read it. Nothing is kept.
    Owners test for what they own, administrators for all callers."""
    body = MediaTestSerializer(data=request.data, context=self.get_serializer_context())
    body.is_valid(raise_exception=True)
    values = body.validated_data
    project, organization = values.get("project"), values.get("organization")
    if project is not None:
        organization = project.organization
    ids = (organization and organization.pk, project and project.pk)
    if not self.access.owns(*ids):
        raise PermissionDenied("Your role does not allow this. Ask an owner or administrator.")
    verdict = tester.test(values["what"], *ids, values.get("model"))
    return Response(verdict.seen_by(self.access).body)


class DeviceSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """A device on which OpenVINO can run models."""

    name = serializers.CharField(help_text="What `device` of a model names.")
    full_name = serializers.CharField()
    memory_bytes = serializers.IntegerField(
        allow_null=True, help_text="The machine's memory for the CPU; null: unknown."
    )
    driver = serializers.CharField(
        allow_null=True, help_text="The version of the driver; null: unknown, or there is none."
    )


class DeviceListSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """The devices of the server's machine."""

    object = serializers.ChoiceField(choices=["list"])
    data = DeviceSerializer(many=True)  # type: ignore[assignment]
    found_at = serializers.DateTimeField(
        allow_null=True, help_text="When the node looked for them; null: it has not yet."
    )


class Devices(ApiView):
    """The devices of the server's machine. They are for administrators of the platform."""

    @extend_schema(responses=DeviceListSerializer)
    def get(self, request: Request) -> Response:
        """List devices. The node looks for them when it starts, and so does `vinery devices`."""
        if not self.access.is_superuser:
            raise PermissionDenied("Only an administrator of the whole platform may do this.")
        known = devices.read(Path(settings.VINERY_RUN_DIR))
        found_at = datetime.fromtimestamp(known.found_at, UTC) if known else None
        data = known.devices if known else ()
        body = {"object": "list", "data": data, "found_at": found_at}
        return Response(DeviceListSerializer(body).data)


@extend_schema(responses=ModelStateSerializer)
@action(detail=True, methods=["get"])
def state(self: ResourceViewSet, request: Request, pk: str) -> Response:
    """Read the state of a model, with its engine and what it has logged last."""
    (model,) = MODELS.load([self.get_object()])
    return Response(ModelStateSerializer(model).data)


class ConversionSerializer(StrictSerializer):
    """A checkpoint, and what becomes of it."""

    folder = serializers.CharField(
        max_length=1024, help_text="Absolute path, on the server, of the folder of the checkpoint."
    )
    name = serializers.CharField(
        max_length=128, help_text="The model that gets the result. A new name adds a model."
    )
    device = serializers.CharField(max_length=64, default="CPU", help_text="Of a new model.")
    is_loaded = serializers.BooleanField(
        default=True, help_text="Whether a new model is loaded then."
    )
    options = serializers.DictField(
        default=dict,
        help_text='Such as {"precision": "int4"}. `vinery model convert --help` lists them.',
    )


@extend_schema(request=ConversionSerializer, responses={201: ModelJobSerializer})
@action(detail=False, methods=["post"], pagination_class=None, filter_backends=[])
def convert(self: ResourceViewSet, request: Request) -> Response:
    """Convert a checkpoint, and serve the result. The answer is the job, which
    `/api/model-jobs/` shows."""
    if not self.access.is_superuser:
        raise PermissionDenied("Only an administrator of the whole platform may do this.")
    body = ConversionSerializer(data=request.data, context=self.get_serializer_context())
    body.is_valid(raise_exception=True)
    values = body.validated_data
    job = conversions.begin(
        Path(values["folder"]),
        values["name"],
        values["options"],
        device=values["device"],
        load=values["is_loaded"],
    )
    return Response(ModelJobSerializer(job).data, status=201)


def ask_engines() -> Mapping[str, EngineWork]:
    """Return what the engines of each model do now, by its name. Called in a thread of Django.
    Waits at most 2 s; an engine that does not answer is left out."""
    work: defaultdict[str, list[EngineWork]] = defaultdict(list)
    for each in async_to_sync(runtime().health)():
        if each.stats is not None:
            work[each.model].append(_work_of(each.stats))
    return {model: EngineWork.of_all(engines) for model, engines in work.items()}


def _work_of(stats: EngineStats) -> EngineWork:
    return EngineWork(**{each.name: getattr(stats, each.name) for each in fields(EngineWork)})


# With or without the last slash, as in the rest of the management API.
_router = SimpleRouter()
_router.trailing_slash = "/?"
_router.register(
    "models",
    viewset_of(
        MODELS,
        state=state,
        convert=convert,
        search_hub=hub_api.search_hub,
        check=hub_api.check,
        pull=hub_api.pull,
    ),
    basename="api-models",
)
_router.register("model-jobs", viewset_of(MODEL_JOBS), basename="api-model-jobs")
_router.register("model-events", viewset_of(MODEL_EVENTS), basename="api-model-events")
_router.register("speed-results", viewset_of(SPEED_RESULTS), basename="api-speed-results")
_router.register("model-aliases", viewset_of(MODEL_ALIASES), basename="api-model-aliases")
for _name, _resource in media.ALL.items():
    _members = {"test": test} if _resource is media.MEDIA_RULES else {}
    _router.register(_name, viewset_of(_resource, **_members), basename=f"api-{_name}")

urlpatterns: list[URLPattern | URLResolver] = [
    *_router.urls,
    re_path("^catalog/?$", hub_api.Catalogue.as_view(), name="api-catalog"),
    re_path("^devices/?$", Devices.as_view(), name="api-devices"),
]
