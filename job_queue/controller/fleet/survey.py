"""Read a bounded number of pages of SageMaker's list of training jobs: first new jobs, then a part of the sweep."""

from collections.abc import Callable

from job_queue.adapters.lookups.training_list import ListedJob, TrainingJobList
from job_queue.adapters.telemetry import log
from job_queue.domain.errors import Unavailable
from job_queue.domain.fleet.listing import ListingProgress, Walk
from job_queue.domain.fleet.sites import Site, key_of

MOST_PAGES = 20  # pages of one walk; at two pages a second, the walk takes ten seconds


def walk_list(
    training_jobs: TrainingJobList,
    listing: ListingProgress,
    now: float,
    may_go_on: Callable[[], bool],
    site: Site | None = None,
) -> Walk:
    """Walk from the newest training job to the known part, then continue the sweep until the pages are used up.

    The returned walk identifies training jobs by their keys (`key_of`).

    :param may_go_on: called after each page. After False, the walk ends, and the next walk continues from there.
    :param site: the site of the list; None: the home site.
    :raises Unavailable: SageMaker did not return a page before the sweep. An error in the sweep only ends the walk.
    """
    walk = Walk(listing, int(now), site)
    pages_left = MOST_PAGES
    for page in training_jobs.newest_first():
        pages_left -= 1
        _add_page(walk, page, sweep=False)
        if page and page[-1].created < listing.known_from:
            break
        if not pages_left or not may_go_on():
            walk.newest_down_to = page[-1].created if page else now
            return walk
    if listing.has_unread_part and pages_left and may_go_on():
        _sweep(training_jobs, walk, pages_left, may_go_on)
    return walk


def _sweep(training_jobs: TrainingJobList, walk: Walk, pages_left: int, may_go_on: Callable[[], bool]) -> None:
    floor = walk.listing.floor
    try:
        for page in training_jobs.newest_first(before=walk.listing.since):
            pages_left -= 1
            _add_page(walk, page, sweep=True)
            if page:
                walk.swept_down_to = page[-1].created
            if not pages_left or not may_go_on() or (page and page[-1].created < floor):
                return
    except Unavailable as error:
        log.warning("sweep interrupted", why=error.message)  # the next walk continues here
    else:
        walk.swept_down_to = floor - 1  # the list has no older training job


def _add_page(walk: Walk, page: list[ListedJob], *, sweep: bool) -> None:
    for job in page:
        key = key_of(job.name, walk.site)
        if job.alive or job.warm:
            walk.add(key, job.created, alive=job.alive, sweep=sweep)
        if job.alive and job.modified is not None:
            walk.stages[key] = job.secondary, job.modified
