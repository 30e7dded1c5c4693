"""``smq sweep --metric``: a search, in which Optuna chooses the values and each trial is a job."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from sagemaker_queue.cli.commands.submit import upload
from sagemaker_queue.cli.commands.sweep.grid import preview
from sagemaker_queue.cli.job_command import job_from_options
from sagemaker_queue.cli.option_names import errors_with_options, with_options
from sagemaker_queue.cli.output import DONE, ENDED_OTHERWISE, print_json, print_warning, raw, width
from sagemaker_queue.cli.parser import bundled, checked, option
from sagemaker_queue.errors import InvalidOption, QueueError
from sagemaker_queue.jobs.formatting import amount, clean
from sagemaker_queue.jobs.packaging.command import stem
from sagemaker_queue.jobs.packaging.sweep import Run, check_placeholders, fingerprint, run_of
from sagemaker_queue.presentation.text.layout import table
from sagemaker_queue.queue.config.pace import POLL_SECONDS
from sagemaker_queue.tuning import studies
from sagemaker_queue.tuning.metric import SearchMetric, parse_metric
from sagemaker_queue.tuning.plan import PRUNERS, SAMPLERS, StudyPlan, TrialRow, check_study_name, job_name
from sagemaker_queue.tuning.space import Choice, Range, Space, Value, grid_size, parse_range, text_of
from sagemaker_queue.workflows.grid import job_for_run

if TYPE_CHECKING:
    from sagemaker_queue.jobs.packaging.command import CommandJob
    from sagemaker_queue.jobs.packaging.job_options import JobKeywords
    from sagemaker_queue.queue.client import QueueClient
    from sagemaker_queue.tuning.study import StoredStudy
    from sagemaker_queue.workflows.job_logs.renderer import JobLogRenderer

TRIALS = 20
PARALLEL = 4


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search; None or empty: the option was not given."""

    spaces: tuple[tuple[str, Range], ...]
    metric: SearchMetric | None
    minimize: bool
    maximize: bool
    sampler: str | None
    trials: int | None
    parallel: int | None
    prune: str | None
    seed: int | None
    study: str | None
    storage: str | None
    poll: float | None  # seconds
    status: bool

    def given(self) -> list[str]:
        """Return the names of the given options."""
        by_option = {"--space" if name == "spaces" else f"--{name}": value for name, value in vars(self).items()}
        return [name for name, value in by_option.items() if value not in (None, (), False)]


_positive = click.IntRange(min=1)
_search = partial(option, section="a search")

search_options = bundled(
    "search",
    SearchOptions,
    _search(
        "--metric",
        metavar="NAME=REGEX",
        type=checked(parse_metric),
        help="the metric in the log: the last number that the group of the pattern finds; a group (?P<step>...) "
        "finds the step of the training",
    ),
    _search("--minimize", is_flag=True, exclusive_group="direction", help="a smaller metric is better"),
    _search("--maximize", is_flag=True, exclusive_group="direction", help="a larger metric is better"),
    _search(
        "--space",
        "spaces",
        metavar="NAME=RANGE",
        type=checked(parse_range),
        multiple=True,
        help="a hyperparameter and its values: lr=log:1e-5..1e-1, dropout=0..0.5, width=int:8..64/8 (in steps of "
        "8), opt=adam,sgd",
    ),
    _search(
        "--sampler",
        type=click.Choice(SAMPLERS),
        help="Optuna's sampler (default: tpe; grid, which tries every combination, if there are only options --grid)",
    ),
    _search(
        "--trials",
        metavar="N",
        type=_positive,
        help=f"number of trials (default {TRIALS}; for a grid, all combinations)",
    ),
    _search(
        "--parallel", metavar="N", type=_positive, help=f"number of live trials at the same time (default {PARALLEL})"
    ),
    _search(
        "--prune",
        type=click.Choice(PRUNERS),
        help="cancel a trial that is worse than the median of the others at the same step (default: none)",
    ),
    _search("--seed", metavar="N", type=click.IntRange(min=0), help="seed of the sampler, to repeat a search"),
    _search("--study", metavar="NAME", help="name of the stored search (default: made from the command)"),
    _search(
        "--storage",
        metavar="URL",
        help="Optuna's address of the storage (default: a file in ~/.local/share/sagemaker-queue/studies)",
    ),
    _search(
        "--poll",
        metavar="SECONDS",
        type=click.FloatRange(min=0.1),
        help=f"shortest time between two requests in seconds (default {POLL_SECONDS:g}); pauses grow while nothing "
        "changes",
    ),
    _search(
        "--status",
        is_flag=True,
        help="print the state of the --study, or without --study list the studies of this machine",
    ),
)


def run_search(
    queue: QueueClient,
    grids: Sequence[tuple[str, tuple[str, ...]]],
    search: SearchOptions,
    options: JobKeywords,
    command: Sequence[str],
    *,
    preflight: bool,
    as_json: bool,
    dry_run: bool,
) -> int:
    """Run or continue a search, and return the exit code.

    If ``dry_run``, only print the first trials. If the first trials all fail, the search starts no more trials (see
    ``Search.run``).
    """
    study_module = studies()
    study_module.silence_optuna()
    with ExitStack() as stack:
        with job_from_options(queue, options, command) as (template, code, storage):
            plan = _plan(queue, grids, search, options, template)
            has_placeholders = check_placeholders(list(plan.space), command, template.env, "space", may_have_none=True)
            trials = search.trials or (grid_size(plan.space) if plan.sampler == "grid" else TRIALS)
            if dry_run:
                return _show_first(
                    study_module.first_trials(plan, min(trials, _parallel(search))), plan, template, as_json
                )
            study: StoredStudy = stack.enter_context(study_module.open_study(plan, search.storage))
            upload(queue, template.request(), code, storage, preflight=preflight, quiet=as_json)
        if not has_placeholders:
            names = ", ".join(_variable(name) for name in plan.space)
            print(f"The command has no placeholders: trials find their values in {names}.", file=sys.stderr)
        return _run_trials(queue, study, template, search, trials=trials, preflight=preflight, as_json=as_json)


def show_study(search: SearchOptions, options: JobKeywords, *, as_json: bool) -> int:
    """Print the trials of a study and the best trial; without a name, list the studies of this machine."""
    name = search.study or options.get("name")
    study_module = studies()
    if not name:
        return _list_studies(study_module.names(), search.storage, as_json=as_json)
    check_study_name(name)
    study_module.silence_optuna()
    with study_module.read_study(name, search.storage) as (settings, rows):
        metric, _, direction = settings["metric"]
        best = _best(rows, maximize=direction == "maximize")
        _print_result(name, metric, direction, rows, best, as_json=as_json)
    return DONE


def _list_studies(names: Sequence[str], storage: str | None, *, as_json: bool) -> int:
    if storage is not None:
        raise InvalidOption("Name the search in this storage: smq sweep --study NAME --storage URL --status.")
    if as_json:
        print_json(list(names))
    elif names:
        print(*names, sep="\n")
        print("To print one of these searches: smq sweep --study NAME --status", file=sys.stderr)
    else:
        print("There are no searches on this machine.", file=sys.stderr)
    return DONE


def _plan(
    queue: QueueClient,
    grids: Sequence[tuple[str, tuple[str, ...]]],
    search: SearchOptions,
    options: JobKeywords,
    template: CommandJob,
) -> StudyPlan:
    if search.study and options.get("name"):
        raise InvalidOption("--study is the name of a search: leave --name out.")
    if not (search.minimize or search.maximize):
        raise InvalidOption("Give --minimize if a small metric is better, or --maximize.")
    assert search.metric is not None
    space = _space(grids, search.spaces)
    command = [list(template.command), dict(template.env)]
    metric = [search.metric.name, search.metric.regex, search.maximize]
    described = [[name, repr(one)] for name, one in space.items()]
    # The default name depends only on the command, its code, the job's options, the metric and the space. So a repeated
    # command continues the search.
    identity = fingerprint(command, metric, described, template.identity())
    return StudyPlan(
        name=search.study or options.get("name") or f"{stem(template.command)}-{identity}",
        space=space,
        metric=search.metric,
        maximize=search.maximize,
        queue=queue.config.url,
        program_id=fingerprint(command),
        sampler=search.sampler or ("tpe" if search.spaces else "grid"),
        pruner=search.prune or "none",
        seed=search.seed,
    )


def _space(grids: Sequence[tuple[str, tuple[str, ...]]], spaces: Sequence[tuple[str, Range]]) -> Space:
    space: dict[str, Range] = {}
    for name, one in (*((name, Choice(values)) for name, values in grids), *spaces):
        if name in space:
            raise InvalidOption(f"The values of {name} are given twice.")
        space[name] = one
    return space


def _run_trials(
    queue: QueueClient,
    study: StoredStudy,
    template: CommandJob,
    search: SearchOptions,
    *,
    trials: int,
    preflight: bool,
    as_json: bool,
) -> int:
    from sagemaker_queue.tuning.progress import show_search  # noqa: PLC0415
    from sagemaker_queue.tuning.search import Search  # noqa: PLC0415

    plan = study.plan
    warned: set[str] = set()

    def submit(job: CommandJob) -> None:
        request = job.request()
        with errors_with_options(request):
            warnings = queue.submit(request, preflight=preflight).warnings
        for warning in warnings:
            if warning not in warned:  # all trials get the same warnings
                print_warning(with_options(warning, request))
            warned.add(warning)

    running_search = Search(
        study,
        queue,
        queue.aws_client("logs"),
        lambda trial: submit(_job(template, plan.name, trial.number, trial.params, trial.tags)),
        trials=trials,
        parallel=_parallel(search),
        poll=search.poll or POLL_SECONDS,
    )
    print(f"Search {plan.name}: {amount(trials, 'trial')}, {_parallel(search)} at a time", file=sys.stderr)
    try:
        show_search(running_search.run(), plan, progress_renderer(), live=sys.stderr.isatty())
    except (KeyboardInterrupt, QueueError):
        print(
            f"smq: the jobs of {plan.name} continue. To continue the search, repeat the command with --study "
            f"{plan.name}; to cancel the jobs: smq cancel --group {plan.name}",
            file=sys.stderr,
        )
        raise
    best = study.best()
    direction = "maximize" if plan.maximize else "minimize"
    _print_result(plan.name, plan.metric.name, direction, study.rows(), best, as_json=as_json)
    if running_search.gave_up:
        print(
            "smq: all trials of this run failed, so no more trials are started; smq logs JOB prints a log. The same "
            "command continues.",
            file=sys.stderr,
        )
    return DONE if best and not running_search.gave_up else ENDED_OTHERWISE


def progress_renderer() -> JobLogRenderer:
    """Return the renderer of a search's progress, which writes to stderr with control sequences."""
    from sagemaker_queue.workflows.job_logs.renderer import JobLogRenderer  # noqa: PLC0415  # botocore is slow to import

    return JobLogRenderer(raw(sys.stderr), raw(sys.stderr))


def _job(
    template: CommandJob, study: str, number: int, params: Mapping[str, Value], tags: Mapping[str, str]
) -> CommandJob:
    job = job_for_run(template, study, _run(template, study, number, params))
    return replace(job, tags={**job.tags, **tags})


def _run(template: CommandJob, study: str, number: int, params: Mapping[str, Value]) -> Run:
    values = {name: text_of(value) for name, value in params.items()}
    run = run_of(job_name(study, number), values, template.command, template.env)
    return replace(run, env={**{_variable(name): value for name, value in values.items()}, **run.env})


def _variable(name: str) -> str:
    """Return the name of the environment variable with a hyperparameter's value, as in SageMaker's own images."""
    return f"SM_HP_{name.upper()}"


def _parallel(search: SearchOptions) -> int:
    return search.parallel or PARALLEL


def _show_first(first: Sequence[Mapping[str, Value]], plan: StudyPlan, template: CommandJob, as_json: bool) -> int:
    runs = [_run(template, plan.name, number, params) for number, params in enumerate(first)]
    if as_json:
        print_json([job_for_run(template, plan.name, run).request() for run in runs])
    else:
        print(preview(plan.name, runs, template))
    return DONE


def _best(rows: Sequence[TrialRow], *, maximize: bool) -> TrialRow | None:
    completed = [row for row in rows if row.state == "completed" and row.value is not None]
    return min(completed, key=lambda row: (-_figure(row) if maximize else _figure(row), row.number), default=None)


def _figure(row: TrialRow) -> float:
    assert row.value is not None
    return row.value


def _print_result(
    study: str, metric: str, direction: str, rows: Sequence[TrialRow], best: TrialRow | None, *, as_json: bool
) -> None:
    from sagemaker_queue.tuning.progress import figure, values  # noqa: PLC0415

    if as_json:
        result: dict[str, Any] = {"study": study, "metric": metric, "direction": direction}
        print_json({**result, "best": best and best.to_json(), "trials": [row.to_json() for row in rows]})
        return
    lines = [
        [str(row.number), row.job, row.state, figure(row.value), values(row.params), clean(row.reason or "")]
        for row in rows
    ]
    if lines:
        print(table(["Trial", "Job Name", "State", metric, "Values", "Reason"], lines, width=width()))
    if best:
        exact = " ".join(f"{name}={text_of(value)}" for name, value in best.params.items())
        print(f"\nThe best of {study}: {metric} {figure(best.value)}, trial {best.number} ({best.job}): {exact}")
    else:
        print(f"\nNo trial of {study} has completed.")
