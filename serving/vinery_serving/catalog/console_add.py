"""The console's pages that add a model: from the catalogue, from a hub, and from a folder."""

from functools import cached_property
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import path, reverse

from vinery_accounts.console.page import FormPage
from vinery_serving.catalog import pulls
from vinery_serving.catalog.console_add_page import AddPage
from vinery_serving.catalog.hub_questions import ask
from vinery_serving.catalog.job_resource import bytes_text
from vinery_serving.catalog.model_form import FolderForm, PullForm
from vinery_serving.catalog.models import ServedModel
from vinery_serving.catalog.option_fields import known_devices
from vinery_serving.catalog.pulls import Judged
from vinery_serving.catalog.resource import MODELS
from vinery_serving.catalog.verdict_facts import verdict_facts
from vinery_serving.hub import catalogue
from vinery_serving.hub.catalogue import CatalogueModel
from vinery_serving.hub.client import Hub
from vinery_serving.hub.errors import PullFailed
from vinery_serving.hub.search import Found, search
from vinery_serving.hub.verdict import Answer

_MAX_TEXT: Final = 200


class AddFromCatalogue(AddPage):
    """`/console/models/add/`: `task=chat` and `all=on` filter. A POST adds the model `name`."""

    way = "catalogue"
    template_name = "console/model_add_catalogue.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        task, shows_all = self.request.GET.get("task", ""), "all" in self.request.GET
        machine = pulls.machine_for("CPU")
        rows = [(model, model.fits(machine)) for model in catalogue.catalogue()]
        return super().get_context_data(**kwargs) | {
            "rows": [
                (model, bytes_text(model.need_on(machine).total_bytes), fits)
                for model, fits in rows
                if task in ("", model.task) and (fits or shows_all)
            ],
            "memory": bytes_text(machine.memory_bytes),
            "disk": bytes_text(machine.free_disk_bytes),
            "tasks": sorted({model.task for model, _ in rows}),
            "task": task,
            "shows_all": shows_all,
        }

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        entry = catalogue.find(request.POST.get("name", ""))
        if entry is None:
            return redirect("console:model-add")
        try:
            return self.to_model(_add(entry))
        except (PullFailed, ValidationError) as error:
            messages.error(request, " ".join(getattr(error, "messages", [str(error)])))
            return redirect("console:model-add")


def _add(entry: CatalogueModel) -> ServedModel:
    """Serve a model of the catalogue under its name. Raises `PullFailed` and ValidationError."""
    if ServedModel.objects.filter(name=entry.name).exists():
        raise ValidationError(f"A model is served as {entry.name} already.")
    shipped = pulls.add_shipped(entry.name, None, device="CPU", load=True)
    machine = pulls.machine_for("CPU")
    return (
        shipped
        or pulls.begin(ask(lambda: pulls.judge(entry.name, machine=machine)), entry.name).model
    )


class AddFromHub(AddPage, FormPage):
    """`/console/models/add/hub/`: `q` has words to search for, or a name of a repository, which is
    judged before it is pulled. A POST pulls it."""

    way = "hub"
    template_name = "console/model_add_hub.html"

    def form_of(self, data: QueryDict | None) -> PullForm:
        initial = {"name": self.asked.rpartition("/")[2], "is_loaded": True}
        return PullForm(data, initial=initial)

    @cached_property
    def asked(self) -> str:
        return self.request.GET.get("q", "").strip()[:_MAX_TEXT]

    @cached_property
    def device(self) -> str:
        return self.request.GET.get("device", "").strip()[:_MAX_TEXT] or "CPU"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """A URL or a path belongs on another page."""
        if "://" in self.asked or self.asked.startswith("/"):
            query = urlencode({"what": self.asked})
            return redirect(f"{reverse('console:model-add-file')}?{query}")
        return super().get(request, *args, **kwargs)

    @property
    def is_name(self) -> bool:
        return "/" in self.asked or catalogue.find(self.asked) is not None

    def judge(self) -> Judged:
        """Raises `PullFailed`."""
        revision = self.request.GET.get("revision", "").strip()[:_MAX_TEXT] or None
        include = self.request.GET.get("include", "")[:_MAX_TEXT].split()
        machine = pulls.machine_for(self.device)
        return ask(lambda: pulls.judge(self.asked, revision, include, machine=machine))

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs) | {
            "asked": self.asked,
            "device": self.device,
            "devices": known_devices(),
            "revision": self.request.GET.get("revision", ""),
            "include": self.request.GET.get("include", ""),
            "shows_all": "all" in self.request.GET,
        }
        try:
            return context | self._answered(context["form"])
        except PullFailed as error:
            return context | {"problem": str(error)}

    def _answered(self, form: PullForm) -> dict[str, Any]:
        if not self.asked:
            return {}
        if not self.is_name:
            return {"has_searched": True, "found": self._found()}
        verdict = self.judge().verdict
        assert verdict is not None  # as of an archive
        if verdict.answer is not Answer.CONVERT:
            del form.fields["precision"]
        facts = [(name.capitalize(), text) for name, text in verdict_facts(verdict)]
        return {"verdict": verdict, "facts": facts, "may_pull": verdict.answer is not Answer.NO}

    def _found(self) -> list[Found]:
        text, only_openvino = self.asked, "all" not in self.request.GET
        return ask(lambda: search(Hub.of_environment(), text, only_openvino=only_openvino))

    def save(self, form: PullForm) -> HttpResponse:
        """Raises ValidationError for what will not load, and if the hub does not answer."""
        columns = form.columns
        try:
            judged = self.judge()
        except PullFailed as error:
            raise ValidationError(str(error)) from error
        job = pulls.begin(
            judged,
            columns["name"],
            device=self.device,
            options=columns["options"],
            load=columns["is_loaded"],
            precision=form.cleaned_data["precision"] or None,
        )
        return self.to_job(job, "Pulling")


class AddFolder(AddPage, FormPage):
    """`/console/models/add/folder/`."""

    way = "folder"
    template_name = "console/model_add_folder.html"

    def form_of(self, data: QueryDict | None) -> FolderForm:
        return FolderForm(data)

    def save(self, form: FolderForm) -> HttpResponse:
        return self.to_model(MODELS.create(self.access, form.columns))


urlpatterns = [
    path("models/add/", AddFromCatalogue.as_view(), name="model-add"),
    path("models/add/hub/", AddFromHub.as_view(), name="model-add-hub"),
    path("models/add/folder/", AddFolder.as_view(), name="model-add-folder"),
]
