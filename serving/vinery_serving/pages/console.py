"""The console's pages of served models, and of their other names; both in Django's admin.

Users see names and states; administrators see what the engines do, load and unload models, and find
the page of each, as tabs: state with jobs and buttons, log, speed with the search for faster engine
options, settings, and history."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from vinery_accounts.access.served import visible_models
from vinery_accounts.admin.base import register
from vinery_accounts.console import rows
from vinery_accounts.console.page import FormPage, LivePage, at
from vinery_accounts.console.rows import ChangeRow, ConfirmPage, NewRow, RowForm, RowPage, add_page
from vinery_accounts.resources.forms import ParametersForm, ResourceForm
from vinery_accounts.resources.limits import prices_of
from vinery_serving.core.tasks import Task
from vinery_serving.models import job_resource, registry
from vinery_serving.models.engine_status import ShownState
from vinery_serving.models.engine_work import NO_LOG, engine_log_path, log_after
from vinery_serving.models.host_rows import replicas_by_model
from vinery_serving.models.job_requests import MEASURABLE, checkpoint_of, has_changed_since
from vinery_serving.models.job_resource import MODEL_EVENTS, MODEL_JOBS
from vinery_serving.models.job_rows import (
    JobKind,
    JobState,
    ModelJob,
    SpeedResult,
    bytes_text,
    newest_speeds,
)
from vinery_serving.models.models import MODEL_NAME, ModelAlias, ServedModel
from vinery_serving.models.resource import MODEL_ALIASES, MODELS, targets_text
from vinery_serving.pages.model_form import ChangedModelForm, known_devices


class TargetsField(forms.CharField):
    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return ", ".join(f"{name}={weight}" for name, weight in value.items())

    def to_python(self, value: Any) -> Any:
        """Return weights by names. Raises ValidationError for a wrong name or weight."""
        return dict(map(_target, (value or "").replace(",", " ").split()))


def _target(word: str) -> tuple[str, int]:
    name, separator, weight = word.partition("=")
    MODEL_NAME(name)
    if separator and not (weight.isascii() and weight.isdecimal() and len(weight) < 10):
        raise forms.ValidationError(f"Write {name}=90: a weight is a whole number.")
    return name, int(weight) if separator else 1


class AliasForm(ResourceForm):
    targets = TargetsField(
        label="Models",
        help_text="One model, or several with weights: qwen-a=90, qwen-b=10 gives one request in "
        "ten to qwen-b. A model with the weight 0 answers only if no other can.",
        widget=forms.TextInput({"autocomplete": "off", "spellcheck": "false"}),
    )
    field_order = ("name", "targets")


class _AliasPage(RowForm):
    needs = "is_superuser"
    resource = MODEL_ALIASES
    form_class = AliasForm
    note = (
        "Clients send the alias as model, and each request goes to one of its models. In force "
        "within a second."
    )

    def texts(self) -> dict[str, Any]:
        names = ", ".join(ServedModel.objects.values_list("name", flat=True))
        return {"intro": f"Served models: {names or 'none yet'}."}

    def row_address(self, row: ModelAlias) -> str:
        return reverse("console:models")


@at("models/aliases/new/", "alias-new")
class NewAlias(_AliasPage, NewRow):
    """`model=qwen-a` fills in the form."""

    heading, button = "Alias of models", "Save"
    done = "{row} is an alias now."

    def form_of(self, data: QueryDict | None) -> ResourceForm:
        return self.make_form(data, initial={"targets": self.request.GET.get("model", "")[:128]})


@at("models/aliases/<int:row_id>/", "alias")
class ChangeAlias(_AliasPage, ChangeRow):
    def texts(self) -> dict[str, Any]:
        remove = reverse("console:alias-remove", args=[self.row.pk])
        return {**super().texts(), "heading": f"Alias {self.row}", "remove": remove}


@at("models/aliases/<int:row_id>/", "alias", "remove")
class RemoveAlias(ConfirmPage):
    resource = MODEL_ALIASES


def actions_of(model: ServedModel) -> list[str]:
    if not model.folder:
        return []
    if not model.is_loaded:
        return ["load"]
    retry = ["retry"] if model.status.has_failed else []
    wake = ["load"] if model.shown_state is ShownState.ASLEEP else []
    is_measured = model.shown_state in MEASURABLE and Task(model.task).is_generation
    bench = ["bench"] if is_measured else []
    test = ["self-test"] if model.takes_pictures else []
    return [*retry, *wake, "unload", *test, *bench]


def body_of(model: ServedModel) -> dict[str, Any]:
    """Return a model as the API does, after it was loaded by `MODELS.load`."""
    return dict(MODELS.serializer(model).data)


def _row(model: ServedModel, speed: SpeedResult | None, *, is_admin: bool) -> dict[str, Any]:
    """Return a model as the page shows it. Users see its name, task and state alone."""
    tokens_per_s = speed.value(1, "output_tokens_per_s") if speed else None
    engine = body_of(model)["engine"] if is_admin else {}
    actions = actions_of(model) if is_admin else []  # its own page has more
    num_bytes = engine.get("memory_bytes")
    return {
        "model": model,
        "engine": engine,
        "memory": bytes_text(num_bytes) if num_bytes else "",
        "speed": f"{tokens_per_s:.1f} tokens/s" if tokens_per_s else "",
        "measured_at": speed and speed.measured_at,
        "job": None if model.folder else model.folder_job,
        "actions": [each for each in actions if each in ("load", "unload", "retry")],
    }


@at("models/", "models")
class Models(LivePage):
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        is_admin = self.access.is_superuser
        names = {each.name for each in visible_models(self.access)}
        models = [each for each in registry.list_models() if each.name in names]
        aliases = ModelAlias.objects.all()
        speeds, prices = newest_speeds() if is_admin else {}, prices_of(names)
        return super().get_context_data(**kwargs) | {
            "is_admin": is_admin,
            "aliases": [
                (alias, targets_text(seen))
                for alias in aliases
                if (seen := {name: alias.targets[name] for name in alias.targets if name in names})
            ],
            "rows": [
                _row(model, speeds.get(model.pk), is_admin=is_admin)
                | {"price": prices.get(model.name, "")}
                for model in (MODELS.load(models) if is_admin else models)
            ],
        }


# -- One model

_MODEL: Final = "models/<int:row_id>/"
_JOB: Final = "models/jobs/<int:row_id>/"
_MS: Final = 1000
_TABS: Final = (
    ("model", "State"),
    ("model-log", "Log"),
    ("model-speed", "Speed"),
    ("model-settings", "Settings"),
    ("model-history", "History"),
)


class ModelTab(RowPage):
    """A page of a model. `tab` is the name of its URL."""

    resource = MODELS
    tab: ClassVar[str] = "model"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        (row,) = MODELS.load([self.resource.rows(self.access).get(pk=self.row.pk)])
        return super().get_context_data(**kwargs) | {"row": row, "tabs": _TABS}

    def jobs(self) -> list[ModelJob]:
        return list(self.row.jobs.select_related("model")[:10])


@at(f"{_MODEL}speed/", "model-speed")
class ModelSpeed(ModelTab, LivePage):
    tab = "model-speed"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        row = context["row"]
        return context | {
            **_speed_of(row),
            "may_measure": "bench" in actions_of(row),
            "may_tune": row.folder and Task(row.task).is_generation,
            "jobs": [each for each in self.jobs() if each.kind in (JobKind.BENCH, JobKind.TUNE)],
        }


def _speed_of(model: ServedModel) -> dict[str, Any]:
    newest = SpeedResult.objects.filter(model=model).first()
    return {
        "speed": newest,
        "speed_rows": [
            (each, f"{each['first_token_s'] * _MS:.0f} ms", bytes_text(each["memory_bytes"]))
            for each in (newest.points if newest else ())
        ],
    }


@at(f"{_MODEL}tune/", "model-tune")
class Tune(ModelTab, LivePage, FormPage):
    """The form, the running search, the trials of the last one, and a button for the best."""

    template_name = "console/model_tune.html"
    tab = "model-speed"

    def form_of(self, data: QueryDict | None) -> ParametersForm:
        serializer = MODELS.action("tune").serializer
        return ParametersForm(serializer, serializer().fields, data)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        tunings = ModelJob.objects.filter(model=self.row, kind=JobKind.TUNE)
        done = tunings.filter(state=JobState.DONE).first()
        search = {"search": tunings.select_related("model").first()}
        return super().get_context_data(**kwargs) | search | _tuning_facts(self.row, done)

    def save(self, form: ParametersForm) -> HttpResponse:
        MODELS.act(self.access, MODELS.action("tune"), self.row, **form.values)
        messages.success(self.request, "The search begins. This page shows what it does.")
        return redirect("console:model-tune", self.row.pk)


def _tuning_facts(model: ServedModel, done: ModelJob | None) -> dict[str, Any]:
    if done is None:
        return {"trials": []}
    result = done.result
    return {
        "tuned_at": done.ended_at,
        "trials": list(job_resource.trial_rows(result)),
        "summary": job_resource.summary(result),
        "is_better": job_resource.is_better(result),
        "is_set": model.options == result["best"],
        "has_changed": has_changed_since(model, done),
    }


_DONE: Final = {
    "load": "Loading {row}.",
    "unload": "Unloading {row}. Clients get an error until it is loaded.",
    "retry": "Loading {row} again.",
    "self-test": "Testing {row}. A failure appears here within a minute.",
    "bench": "Measuring {row}. The result appears here within minutes.",
    "apply-tuning": "{row} has the options of its tuning. Its engine starts again with them.",
}


def engine_facts(
    body: Mapping[str, Any], attempts: str, *, cache_grows: bool | None
) -> Iterator[tuple[str, str]]:
    """Yield names and texts of facts about an engine. `body` is that of the API, `attempts` the
    text about attempts to load. `cache_grows`: the KV cache has no fixed size; None: there is no
    cache."""
    if body["num_running"] is not None:
        yield "Running requests", str(body["num_running"])
        yield "Waiting requests", str(body["num_waiting"])
    if body["work"] is not None:
        yield from _work_facts(body["work"], cache_grows=cache_grows)
    now, peak = body["memory_bytes"] or 0, body["peak_bytes"] or 0
    # The peak is measured once a minute, without memory that engines share.
    sizes = (("now", now), ("at most", peak > now and peak), ("expected", body["needed_bytes"]))
    yield from ((f"Memory {name}", bytes_text(each)) for name, each in sizes if each)
    if body["max_context"]:
        yield "Context", f"{body['max_context']:,} tokens"
    if body["num_attempts"]:
        yield "Attempts to load", attempts
    for each in body["replicas"]:
        where = f"{each['device']} of {host}" if (host := each.get("host")) else each["device"]
        text = f"{each['state']} on {where}"
        yield f"Replica {each['replica']}", f"{text}. {each['error']}" if each["error"] else text
    if body["num_restarts"]:
        yield "Restarts", str(body["num_restarts"])


def _work_facts(work: Mapping[str, Any], *, cache_grows: bool | None) -> Iterator[tuple[str, str]]:
    yield "Prompt tokens per second", f"{work['prompt_tokens_per_s']:,.1f}"
    yield "Generated tokens per second", f"{work['output_tokens_per_s']:,.1f}"
    for name, title in (("first_token_s", "First token"), ("inter_token_s", "Between tokens")):
        if (wait := work[name]) is not None:
            yield title, f"{1000 * wait['p50']:,.0f} ms, p95 {1000 * wait['p95']:,.0f} ms"
    if cache_grows is not None:
        used = bytes_text(round(work["cache_usage"] * work["cache_bytes"]))
        size = bytes_text(work["cache_bytes"])
        maximum = "it grows as needed" if cache_grows else f"at most {size}"
        yield "KV cache used", f"{used}; {maximum}"
    if work["prefix_hit_rate"] is not None:
        yield "Prompt tokens from the cache", f"{work['prefix_hit_rate']:.0%}"
    if work["draft_acceptance"] is not None:
        yield "Accepted draft tokens", f"{work['draft_acceptance']:.0%}"
    if (loss := work["draft_loss"]) is not None:
        yield "Tokens proposed ahead", f"none just now: answers were slower by {loss:.0%} with them"


@at(_MODEL, "model")
class ModelPage(ModelTab, LivePage):
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        row = context["row"]
        attempts, engine = row.status.attempts_text, body_of(row)["engine"]
        has_cache, has_size = Task(row.task).is_generation, bool(row.options.get("cache_size_gb"))
        cache_grows = not has_size if has_cache else None
        return context | {
            "actions": [name for name in actions_of(row) if name != "bench"],  # on the speed tab
            "facts": list(engine_facts(engine, attempts, cache_grows=cache_grows)),
            "hosts": dict.fromkeys(name for _, name in replicas_by_model().get(row.pk, ())),
            "price": prices_of([row.name]).get(row.name),
            "aliases": [each for each in ModelAlias.objects.all() if row.name in each.targets],
            "jobs": self.jobs(),
            "checkpoint": checkpoint_of(row),
            "base_url": self.base_url(),
        }


@at(f"{_MODEL}settings/", "model-settings")
class ModelSettings(ModelTab, ChangeRow):
    template_name = "console/model_settings.html"
    tab = "model-settings"
    form_class = ChangedModelForm
    devices = staticmethod(known_devices)
    done = "{row} is changed."

    def row_address(self, row: ServedModel) -> str:
        return reverse("console:model-settings", args=[row.pk])

    def stored(self, row: ServedModel) -> HttpResponse:
        response = super().stored(row)
        for warning in getattr(row, "warnings", ()):
            messages.warning(self.request, warning)
        return response


@at(f"{_MODEL}history/", "model-history")
class ModelHistory(ModelTab, LivePage):
    tab = "model-history"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        events = MODEL_EVENTS.rows(self.access).filter(model=self.row)
        return super().get_context_data(**kwargs) | rows.page_of(events, self.request)


@at(_MODEL, "model", *_DONE)
class ActOnModel(ConfirmPage):
    """Buttons of the list (`?from=list`), of the model, and of its tuning (`?from=tune`)."""

    resource = MODELS

    def done_text(self) -> str:
        return _DONE[self.does].format(row=self.row)

    def back_address(self) -> str:
        if self.request.GET.get("from") == "list":
            return reverse("console:models")
        page = "model-tune" if self.request.GET.get("from") == "tune" else "model"
        page = "model-speed" if self.does == "bench" else page
        return reverse(f"console:{page}", args=[self.row.pk])


add_page(ConfirmPage, MODELS, f"{_MODEL}remove/", "model-remove", does="remove")


class _JobPage(RowPage):
    resource = MODEL_JOBS

    def back_address(self) -> str:
        return reverse("console:model", args=[self.row.model_id])


@at(_JOB, "model-job", "pause", "resume", "cancel")
class ActOnJob(_JobPage, ConfirmPage):
    pass


class LogPage(RowPage):
    """A page with a log. A script asks for newer lines with `?after=POSITION`."""

    def log(self) -> tuple[Path, dict[str, str]]:
        """Return the path of the log, and the texts of the page."""
        raise NotImplementedError

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        after = request.GET.get("after")
        if after is None:
            return super().get(request, *args, **kwargs)
        lines, position = log_after(self.log()[0], after)
        return JsonResponse({"lines": lines, "position": position})

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        path, texts = self.log()
        lines, position = log_after(path, "")
        about = {"lines": "".join(f"{line}\n" for line in lines), "position": position}
        return super().get_context_data(**kwargs) | about | texts


@at(f"{_MODEL}log/", "model-log")
class ModelLog(ModelTab, LogPage):
    tab = "model-log"

    def log(self) -> tuple[Path, dict[str, str]]:
        return engine_log_path(self.row.name), {
            "heading": str(self.row),
            "no_log": NO_LOG.format(model=self.row.name),
            "about": "The engine's lines on this host, in UTC.",
            "command": f"vinery model logs --follow {self.row}",
        }


@at(f"{_JOB}log/", "model-job-log")
class JobLog(_JobPage, LogPage):
    def log(self) -> tuple[Path, dict[str, str]]:
        return self.row.log_path, {
            "heading": f"Log of job {self.row.pk}: {self.row.kind} {self.row.model}",
            "no_log": "The job has logged nothing on this host.",
            "about": "The job's output on this host.",
            "command": f"vinery job log {self.row.pk}",
            "back": self.back_address(),
        }


register(MODELS, is_of_platform=True)
register(MODEL_ALIASES)
