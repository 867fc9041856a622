"""The part of the management API about served models, devices and media rules: `/api/models/`,
`/api/devices/`, `/api/media-rules/` and what belongs to them.

These tables belong to serving, and the views to accounts: here they meet.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync
from django.conf import settings
from django.urls import URLPattern, URLResolver, re_path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from vinery_accounts.api.views import ApiView, ResourceViewSet, urls_of
from vinery_accounts.models import Scope
from vinery_accounts.resources.base import Resource, require_administrator
from vinery_serving.gateway.state.runtime import runtime
from vinery_serving.media.tables import resource as media
from vinery_serving.models import devices, live_requests
from vinery_serving.models.engine_status import ShownState
from vinery_serving.models.engine_work import EngineSerializer, engine_log, joined
from vinery_serving.models.host_resource import HOSTS
from vinery_serving.models.hub_resource import CatalogueSerializer, catalogue_body
from vinery_serving.models.job_resource import MODEL_EVENTS, MODEL_JOBS, SPEED_RESULTS
from vinery_serving.models.models import ServedModel
from vinery_serving.models.resource import MODEL_ALIASES, MODELS
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


class LiveRequestListSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """The requests that run now."""

    object = serializers.ChoiceField(choices=["list"])
    data = live_requests.LiveRequestSerializer(many=True)  # type: ignore[assignment]


class Devices(ApiView):
    """The devices of the server's machine. They are for administrators of the platform."""

    @extend_schema(responses=DeviceListSerializer)
    def get(self, request: Request) -> Response:
        """List devices. The node looks for them when it starts, and so does `vinery devices`."""
        require_administrator(self.access)
        known = devices.read(Path(settings.VINERY_RUN_DIR))
        found_at = datetime.fromtimestamp(known.found_at, UTC) if known else None
        data = known.devices if known else ()
        body = {"object": "list", "data": data, "found_at": found_at}
        return Response(DeviceListSerializer(body).data)


class Catalogue(ApiView):
    """Ready-made models. They are for administrators of the platform."""

    @extend_schema(responses=CatalogueSerializer)
    def get(self, request: Request) -> Response:
        """List the models that can be pulled by name, and whether they fit this server."""
        require_administrator(self.access)
        return Response(catalogue_body())


class LiveRequests(ApiView):
    """The requests that run now in the web processes of this host, as far as you may see their
    usage. Keys with the scope `usage` may read them, too."""

    read_scope = Scope.USAGE

    @extend_schema(responses=LiveRequestListSerializer)
    def get(self, request: Request) -> Response:
        """List running requests, the oldest first."""
        body = {"object": "list", "data": live_requests.live_rows(self.access)}
        return Response(LiveRequestListSerializer(body).data)


class StopRequest(ApiView):
    """The end of a running request, for those who may revoke its key."""

    @extend_schema(
        request=live_requests.StopSerializer, responses=live_requests.LiveRequestSerializer
    )
    def post(self, request: Request, request_id: str) -> Response:
        """Stop a running request. Its client gets the error `stopped` with the reason, and what was
        generated so far stays charged."""
        body = live_requests.StopSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        row = live_requests.stop(self.access, request_id, body.validated_data["reason"])
        return Response(live_requests.LiveRequestSerializer(row).data)


@extend_schema(responses=ModelStateSerializer)
@action(detail=True, methods=["get"])
def state(self: ResourceViewSet, request: Request, pk: str) -> Response:
    """Read the state of a model, with its engine and what it has logged last."""
    (model,) = MODELS.load([self.get_object()])
    return Response(ModelStateSerializer(model).data)


def ask_engines() -> Mapping[str, EngineStats]:
    """Return what the engines of each model do now, by its name. Called in a thread of Django.
    Waits at most 2 s; an engine that does not answer is left out."""
    work: defaultdict[str, list[EngineStats]] = defaultdict(list)
    for each in async_to_sync(runtime().health)():
        if each.stats is not None:
            work[each.model].append(each.stats)
    return {model: joined(engines) for model, engines in work.items()}


_resources: dict[str, Resource[Any]] = {
    "models": MODELS,
    "model-jobs": MODEL_JOBS,
    "model-events": MODEL_EVENTS,
    "speed-results": SPEED_RESULTS,
    "model-aliases": MODEL_ALIASES,
    "hosts": HOSTS,
    **media.ALL,
}
urlpatterns: list[URLPattern | URLResolver] = [
    *urls_of(_resources, {"models": {"state": state}}),
    re_path("^catalog/?$", Catalogue.as_view(), name="api-catalog"),
    re_path("^live/?$", LiveRequests.as_view(), name="api-live"),
    re_path("^live/(?P<request_id>[0-9A-Za-z_-]{1,64})/stop/?$", StopRequest.as_view()),
    re_path("^devices/?$", Devices.as_view(), name="api-devices"),
]
