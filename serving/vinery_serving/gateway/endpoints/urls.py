"""The Django views under the two URL trees. Generation endpoints are in `consumers`."""

from django.urls import re_path

from vinery_serving.gateway.endpoints import views

urlpatterns = [
    re_path(r"^(?P<tree>v1|v3)/models/?$", views.list_models),
    # Names may contain slashes. Clients percent-encode them, and servers decode them.
    re_path(r"^(?P<tree>v1|v3)/models/(?P<name>.+)$", views.retrieve_model),
    # vLLM has this path at the root.
    re_path(r"^(?:(?:v1|v3)/)?tokenizer_info/?$", views.tokenizer_info),
    re_path(r"^(?P<tree>v1|v3)/responses/compact/?$", views.unknown_route),
    re_path(
        r"^(?P<tree>v1|v3)/responses/(?P<response_id>[^/]+)/?$",
        views.for_clients(views.no_response, methods=("GET", "DELETE")),
    ),
    re_path(
        r"^(?P<tree>v1|v3)/responses/(?P<response_id>[^/]+)/cancel/?$",
        views.for_clients(views.no_response, methods=("POST",)),
    ),
    re_path(
        r"^(?P<tree>v1|v3)/responses/(?P<response_id>[^/]+)/input_items/?$",
        views.for_clients(views.no_response),
    ),
    re_path(r"^(?P<tree>v1|v3)(?:/.*)?$", views.unknown_route),
]
