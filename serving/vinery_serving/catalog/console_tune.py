"""The console's page that looks for faster engine options of a model: the form, the search that
runs, what each trial of the last one gave, and a button that sets the best."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import path

from vinery_accounts.console.live import LivePage
from vinery_accounts.console.page import FormPage
from vinery_accounts.console.rows import RowPage
from vinery_accounts.resources.base import Conflict
from vinery_accounts.resources.forms import form_field
from vinery_serving.catalog.jobs import JobKind, JobState, ModelJob
from vinery_serving.catalog.model_facts import JobView, job_view
from vinery_serving.catalog.models import ServedModel
from vinery_serving.catalog.resource import MODELS, TuneSerializer
from vinery_serving.catalog.speed_requests import has_changed_since
from vinery_serving.catalog.tuning_facts import is_better, summary, trial_rows


class TuneForm(forms.Form):
    """The fields of `TuneSerializer`."""

    def __init__(self, data: QueryDict | None) -> None:
        super().__init__(data)
        for name, field in TuneSerializer().fields.items():
            self.fields[name] = form_field(field)
            self.fields[name].initial = field.default
        self.fields["time_limit_s"].label = "Time limit in seconds"
        self.fields["allow_other_answers"].label = "Allow other answers"

    def usual_fields(self) -> list[forms.BoundField]:
        return self.visible_fields()

    @property
    def values(self) -> dict[str, Any]:
        """What the user has chosen. Empty fields have their defaults."""
        chosen = {name: value for name, value in self.cleaned_data.items() if value is not None}
        return {name: field.initial for name, field in self.fields.items()} | chosen


class Tune(RowPage, LivePage, FormPage):
    """`/console/models/<id>/tune/`."""

    name = "models"
    template_name = "console/model_tune.html"
    resource = MODELS

    def form_of(self, data: QueryDict | None) -> TuneForm:
        return TuneForm(data)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        tunings = ModelJob.objects.filter(model=self.row, kind=JobKind.TUNE)
        newest = tunings.select_related("model").first()
        done = tunings.filter(state=JobState.DONE).first()
        return super().get_context_data(**kwargs) | {
            "search": _view_of(newest),
            **_facts(self.row, done),
        }

    def save(self, form: TuneForm) -> HttpResponse:
        try:
            MODELS.act(self.access, MODELS.action("tune"), self.row, **form.values)
        except Conflict as error:
            form.add_error(None, str(error))
            return self.render_to_response(self.get_context_data(form=form))
        messages.success(self.request, "The search begins. This page shows what it does.")
        return redirect("console:model-tune", self.row.pk)


def _view_of(job: ModelJob | None) -> JobView | None:
    """Return a search that has not ended, or that has failed."""
    is_shown = job is not None and job.state not in (JobState.DONE, JobState.CANCELLED)
    return job_view(job) if job is not None and is_shown else None


def _facts(model: ServedModel, done: ModelJob | None) -> dict[str, Any]:
    """Return what the last search gave, and whether its best options can be set."""
    if done is None:
        return {"trials": []}
    result = done.result
    return {
        "tuned_at": done.ended_at,
        "trials": list(trial_rows(result)),
        "summary": summary(result),
        "is_better": is_better(result),
        "is_set": model.options == result["best"],
        "has_changed": has_changed_since(model, done),
    }


urlpatterns = [path("models/<int:row_id>/tune/", Tune.as_view(), name="model-tune")]
