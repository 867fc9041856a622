"""The console's page that adds a model from an archive or a GGUF file."""

from typing import Final

from django.core.exceptions import ValidationError
from django.http import HttpResponse, QueryDict
from django.urls import path

from vinery_accounts.console.page import FormPage
from vinery_serving.catalog import pulls
from vinery_serving.catalog.console_add_page import AddPage
from vinery_serving.catalog.hub_questions import ask
from vinery_serving.catalog.model_form import FileForm
from vinery_serving.catalog.pulls import Judged
from vinery_serving.hub.errors import PullFailed
from vinery_serving.hub.verdict import Answer

_MAX_PATH: Final = 1024


class AddFile(AddPage, FormPage):
    """`/console/models/add/file/`: `what` is a URL or a path that the form begins with."""

    way = "file"
    template_name = "console/model_add_file.html"

    def form_of(self, data: QueryDict | None) -> FileForm:
        return FileForm(data, initial={"what": self.request.GET.get("what", "")[:_MAX_PATH]})

    def save(self, form: FileForm) -> HttpResponse:
        """Raises ValidationError for what will not load, and if a server does not answer."""
        judged, columns = _judged(form), form.columns
        name = columns["name"] or judged.name
        form.check_name(name)
        job = pulls.begin(
            judged,
            name,
            device=columns["device"],
            options=columns["options"],
            load=columns["is_loaded"],
        )
        return self.to_job(job, "Fetching")


def _judged(form: FileForm) -> Judged:
    """Raises ValidationError at the field `what`."""
    what, sha256 = form.cleaned_data["what"].strip(), form.cleaned_data["sha256"].lower() or None
    device = form.cleaned_data["device"]
    if "://" not in what and not what.startswith("/"):
        raise ValidationError({"what": "Write a URL, or an absolute path, which begins with /."})
    try:
        machine = pulls.machine_for(device)
        judged = ask(lambda: pulls.judge(what, machine=machine, sha256=sha256))
    except PullFailed as error:
        raise ValidationError({"what": str(error)}) from error
    if judged.verdict is not None and judged.verdict.answer is Answer.NO:
        raise ValidationError({"what": " ".join(judged.verdict.reasons)})
    return judged


urlpatterns = [path("models/add/file/", AddFile.as_view(), name="model-add-file")]
