"""The console's pages that add a model: from the catalogue, a hub, a folder or a file, and by the
conversion of a checkpoint."""

from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html

from vinery_accounts.console.limits import prices_address
from vinery_accounts.console.page import FormPage, Page, at
from vinery_accounts.models import Currency
from vinery_accounts.resources.fields import id_of
from vinery_accounts.resources.limits import prices_of
from vinery_serving.models import job_requests, pulls
from vinery_serving.models.hub import catalogue
from vinery_serving.models.hub.catalogue import CatalogueModel
from vinery_serving.models.hub.client import Hub, search
from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.verdict import Answer
from vinery_serving.models.job_requests import Conversion, Pull
from vinery_serving.models.job_rows import bytes_text
from vinery_serving.models.models import ServedModel
from vinery_serving.models.resource import MODELS
from vinery_serving.pages.model_form import ConvertForm, FilesForm, FolderForm, known_devices

_MAX_TEXT: Final = 200
_PROGRESS: Final = " {}. This page shows the progress."


class AddPage(Page):
    """A page that adds a model, in one `way` of several."""

    needs = "is_superuser"
    way = ""
    template_name = "console/model_add_form.html"
    devices = staticmethod(known_devices)

    def to_model(self, model: ServedModel, text: str = "{} is added.") -> HttpResponse:
        more = format_html(' <a href="{}">Set its prices</a>', prices_address(model.name))
        message = format_html(text, model) + (more if Currency.current() else "")
        messages.success(self.request, message)
        return redirect("console:model", model.pk)

    def pull(self, form: FilesForm, asked: Pull, what: str) -> HttpResponse:
        """Raises ValidationError if the model will not load, or a server does not answer."""
        try:
            judged = pulls.look(asked)
            if judged.verdict is not None and judged.verdict.answer is Answer.NO:
                raise PullFailed(" ".join(judged.verdict.reasons))
        except PullFailed as error:
            raise ValidationError({"repository": str(error)}) from error
        form.check_name(asked.name or judged.name)
        return self.to_model(pulls.pull(asked, judged).model, what + _PROGRESS)


@at("models/add/", "model-add")
class AddFromCatalogue(AddPage):
    """`task=chat` and `all=on` filter. A POST adds the model `name`."""

    way = "catalogue"
    template_name = "console/model_add_catalogue.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        task, shows_all = self.request.GET.get("task", ""), "all" in self.request.GET
        machine = pulls.machine_for("CPU")
        rows = [(model, model.fits(machine)) for model in catalogue.catalogue()]
        served = _served()
        prices = prices_of([each.name for each in served.values()])
        return super().get_context_data(**kwargs) | {
            "rows": [
                (model, bytes_text(model.need.total_bytes), fits, known, price)
                for model, fits in rows
                for known in [served.get(model.name)]
                for price in [prices.get(known.name) if known else ""]
                if task in ("", model.task) and (fits or shows_all)
            ],
            "memory": bytes_text(machine.memory_bytes),
            "disk": bytes_text(machine.free_disk_bytes),
            "tasks": sorted({model.task for model, _ in rows}),
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


def _served() -> dict[str, ServedModel]:
    """Return the models that are served, by the names of their entries in the catalogue."""
    by_name: dict[str, ServedModel] = {}
    names = {each.repository: each.name for each in catalogue.catalogue() if each.repository}
    for model in ServedModel.objects.all():
        by_name[model.name] = by_name[names.get(model.source.get("repository"), model.name)] = model
    return by_name


def _add(entry: CatalogueModel) -> ServedModel:
    if ServedModel.objects.filter(name=entry.name).exists():
        raise ValidationError(f"A model is served as {entry.name} already.")
    shipped = pulls.add_shipped(entry.name, None, device="CPU", load=True)
    return shipped or pulls.pull(Pull(repository=entry.name, name=entry.name)).model


@at("models/add/hub/", "model-add-hub")
class AddFromHub(AddPage, FormPage):
    """`q` has words to search for, or the name of a repository to judge. A POST pulls it."""

    way = "hub"
    template_name = "console/model_add_hub.html"

    def form_of(self, data: QueryDict | None) -> FilesForm:
        names = ["name", "precision", "is_loaded", "options"]
        return FilesForm(Pull, names, data, initial={"name": self.asked.rpartition("/")[2]})

    @cached_property
    def asked(self) -> str:
        return self.request.GET.get("q", "").strip()[:_MAX_TEXT]

    @cached_property
    def device(self) -> str:
        return self.request.GET.get("device", "").strip()[:_MAX_TEXT] or "CPU"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """A URL or a path belongs on another page."""
        if "://" in self.asked or self.asked.startswith("/"):
            query = urlencode({"repository": self.asked})
            return redirect(f"{reverse('console:model-add-file')}?{query}")
        return super().get(request, *args, **kwargs)

    def pulled(self, **more: Any) -> Pull:
        return Pull(
            repository=self.asked,
            revision=self.request.GET.get("revision", "").strip()[:_MAX_TEXT] or None,
            include=self.request.GET.get("include", "")[:_MAX_TEXT].split(),
            device=self.device,
            **more,
        )

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        try:
            return context | self._answered(context["form"])
        except PullFailed as error:
            return context | {"problem": str(error)}

    def _answered(self, form: FilesForm) -> dict[str, Any]:
        if not self.asked:
            return {}
        if "/" not in self.asked and catalogue.find(self.asked) is None:  # words
            hub, text, is_all = Hub.of_environment(), self.asked, "all" in self.request.GET
            found = pulls.ask(lambda: search(hub, text, only_openvino=not is_all))
            return {"has_searched": True, "found": found}
        verdict = pulls.look(self.pulled()).verdict
        assert verdict is not None  # as of an archive
        if verdict.answer is not Answer.CONVERT:
            del form.fields["precision"]
        facts = [(name.capitalize(), text) for name, text in pulls.facts_of(verdict)]
        return {"verdict": verdict, "facts": facts, "may_pull": verdict.answer is not Answer.NO}

    def save(self, form: FilesForm) -> HttpResponse:
        return self.pull(form, self.pulled(**form.values), "Pulling")


@at("models/add/file/", "model-add-file")
class AddFile(AddPage, FormPage):
    """An archive or a GGUF file. `repository` is a URL or a path that the form begins with."""

    way, button = "file", "Fetch and serve"
    note = (
        "The page of the model shows the progress; a fetch can be paused and goes on after a "
        "restart."
    )

    def form_of(self, data: QueryDict | None) -> FilesForm:
        names = ["repository", "sha256", "name", "device", "is_loaded", "options"]
        initial = {"repository": self.request.GET.get("repository", "")[:1024]}
        form = FilesForm(Pull, names, data, initial=initial)
        field = form.fields["repository"]
        field.label, field.help_text = (
            "URL or path",
            "An archive (zip or tar) at https:// or s3://, or the absolute path, on this server, "
            "of an archive, a GGUF file or a folder, which is copied.",
        )
        return form

    def save(self, form: FilesForm) -> HttpResponse:
        """Raises ValidationError, also for neither a URL nor an absolute path."""
        what = form.cleaned_data["repository"].strip()
        if "://" not in what and not what.startswith("/"):
            text = "Write a URL, or an absolute path, which begins with /."
            raise ValidationError({"repository": text})
        return self.pull(form, Pull(**form.values | {"repository": what}), "Fetching")


@at("models/add/folder/", "model-add-folder")
class AddFolder(AddPage, FormPage):
    way, button = "folder", "Add"

    def form_of(self, data: QueryDict | None) -> FolderForm:
        return FolderForm(MODELS, self.access, data)

    def save(self, form: FolderForm) -> HttpResponse:
        return self.to_model(MODELS.create(self.access, form.columns))


@at("models/add/convert/", "model-add-convert")
class Convert(AddPage, FormPage):
    """`model=7` converts the checkpoint of a model again."""

    way, button = "convert", "Convert and serve"

    def texts(self) -> dict[str, Any]:
        note = (
            "The page of the model shows the progress and the log. The first conversion makes its "
            "environment, which takes minutes and about 2 GB of disk. A checkpoint that is on a "
            'hub only is <a href="{}?all=on">fetched first</a>.'
        )
        return {"note": format_html(note, reverse("console:model-add-hub"))}

    def form_of(self, data: QueryDict | None) -> ConvertForm:
        wanted = id_of(self.request.GET.get("model", ""))
        model = None if wanted is None else ServedModel.objects.filter(pk=wanted).first()
        if model is None:
            return ConvertForm(data)
        initial = {"folder": job_requests.checkpoint_of(model), "name": model.name}
        return ConvertForm(data, initial={**initial, "device": model.device, "replaces": True})

    def save(self, form: ConvertForm) -> HttpResponse:
        """Raises ValidationError for a checkpoint or options with which nothing can begin."""
        values, folder = form.values, Path(form.cleaned_data["folder"].strip())
        if not folder.is_absolute():
            raise ValidationError({"folder": "Write an absolute path, which begins with /."})
        name = values["name"] or folder.name
        form.check_name(name)
        asked = {**values, "folder": str(folder), "name": name, "options": form.changed_options}
        job = job_requests.convert(Conversion(**asked))
        return self.to_model(job.model, "Converting" + _PROGRESS)
