"""What the repository promises, on each database."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from job_queue.adapters.dynamodb import Update
from job_queue.adapters.items import HISTORY
from job_queue.adapters.job_repository import HISTORY_KEPT, RECOUNT_SECONDS, JobRepository, transactions
from job_queue.adapters.metadata import LEASE_SECONDS, WAITING_QUEUES_OF_PROJECT, Lease, LeaseHeld
from job_queue.domain import state_machine
from job_queue.domain.accounting.ending import Ending
from job_queue.domain.capacity_backoff import CapacityBackoff
from job_queue.domain.errors import LeaseLost, Refused, TooMany
from job_queue.domain.failures import RETURN_SECONDS, GpuFailure
from job_queue.domain.job import ExternalTrainingJob, HistoryEntry, Job, LaunchCall, WarmPool, iso, waiting_queue
from job_queue.domain.launching.launch_rate import TokenBucket
from job_queue.domain.state_machine import JobTransition
from job_queue.scheduler import JobState
from tests.contract.conftest import HISTORY_SECONDS, Database
from tests.jobs import NOW, a_job
from tests.waiting import until

THREADS = 16


def at_once(call: Callable[[int], Any]) -> list[Any]:
    """Run a call in 16 threads that begin at the same moment; gives answers or exceptions."""
    barrier = threading.Barrier(THREADS)

    def run(number: int) -> Any:
        barrier.wait()
        try:
            return call(number)
        except Exception as error:  # noqa: BLE001  (the test looks at it)
            return error

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def leased(repository: JobRepository, holder: str = "me") -> Lease:
    lease = repository.acquire(holder, NOW)
    assert isinstance(lease, Lease)
    return lease


def added(repository: JobRepository, job: Job | None = None) -> Job:
    job = job or a_job()
    assert repository.add(job, "{}", NOW) is None
    return job


def started(repository: JobRepository, lease: Lease, job: Job | None = None) -> Job:
    transition = state_machine.record_launch_intent(
        added(repository, job), {"default": 1}, LaunchCall(int(NOW), int(NOW) + 1000), NOW
    )
    repository.commit(lease, [transition], NOW)
    return transition.new


def running(repository: JobRepository, lease: Lease, job: Job | None = None) -> Job:
    transition = state_machine.accepted(started(repository, lease, job), NOW)
    repository.commit(lease, [transition], NOW)
    return transition.new


# --- jobs --------------------------------------------------------------------------------------------


def test_an_added_job_is_in_its_waiting_queue_as_it_was_given(repository: JobRepository) -> None:
    job = a_job(max_runtime=60, demand=({"a": 1, "b": 2}, {"c": 3}))
    assert repository.add(job, '{"x": 1}', NOW) is None
    record = repository.record("job1")
    assert record is not None
    assert (record.job, record.details) == (job, '{"x": 1}')
    assert [entry.cause for entry in record.history] == ["submitted"]
    assert repository.waiting(job.waiting_queue) == [job]
    assert set(repository.metadata().waiting_queues) == {job.waiting_queue}


def test_a_taken_name_gives_the_job_that_has_it_and_changes_nothing(repository: JobRepository) -> None:
    job = added(repository)
    other = replace(job, submission="other", priority=7)
    existing = repository.add(other, "{}", NOW)
    assert existing is not None
    assert existing.job == job
    assert repository.waiting(job.waiting_queue) == [job]


def test_an_expired_row_counts_as_absent_but_not_before_its_time(repository: JobRepository) -> None:
    job = added(repository)
    repository.apply(state_machine.cancel(job, "ada", NOW), NOW)
    again = replace(job, submission="later")
    assert repository.add(again, "{}", NOW + HISTORY_SECONDS) is not None
    assert repository.add(again, "{}", NOW + HISTORY_SECONDS + 1) is None
    record = repository.record("job1")
    assert record is not None
    assert (record.job.submission, record.job.state, record.expires) == ("later", JobState.PENDING, None)


def test_a_project_has_a_bounded_number_of_waiting_queues(repository: JobRepository) -> None:
    def job(number: int, project: str = "vision") -> Job:
        return a_job(
            f"{project}{number}",
            project=project,
            waiting_queue=waiting_queue(project, ({f"type{number}": 1},)),
            owner=f"arn:aws:iam::123456789012:user/{number}",
        )

    for number in range(WAITING_QUEUES_OF_PROJECT):
        added(repository, job(number))
    with pytest.raises(TooMany, match="vision has 50"):
        repository.add(job(WAITING_QUEUES_OF_PROJECT), "{}", NOW)
    assert repository.record(f"vision{WAITING_QUEUES_OF_PROJECT}") is None
    added(repository, replace(job(0), name="again"))
    added(repository, job(0, "nlp"))
    repository.forget_waiting_queue(job(7).waiting_queue, int(NOW))
    added(repository, job(WAITING_QUEUES_OF_PROJECT))


def test_all_projects_together_have_a_bounded_number_of_waiting_queues(
    repository: JobRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job_queue.adapters.metadata.WAITING_QUEUES_IN_ALL", 3)
    for number in range(3):
        added(
            repository,
            a_job(f"job{number}", project=f"p{number}", waiting_queue=waiting_queue(f"p{number}", ({"type": 1},))),
        )
    with pytest.raises(TooMany, match="all projects have 3"):
        repository.add(a_job("one-more", project="p4", waiting_queue=waiting_queue("p4", ({"type": 1},))), "{}", NOW)


def test_an_owner_has_a_bounded_number_of_waiting_jobs(repository: JobRepository) -> None:
    ada, bob = (f"arn:aws:iam::123456789012:user/{name}" for name in ("ada", "bob"))

    def submit(name: str, owner: str, now: float = NOW) -> None:
        metadata = repository.metadata()
        repository.check_waiting(owner, repository.submissions_of(owner), 2, now, metadata)
        added(repository, a_job(name, owner=owner))
        repository.count_submission(owner, now)

    for name in ("a1", "a2"):
        submit(name, ada)
    submit("b1", bob)
    with pytest.raises(TooMany, match="An owner may have 2 waiting jobs at a time"):
        submit("a3", ada)
    submit("b2", bob)
    job = repository.record("a1")
    assert job
    repository.apply(JobTransition(job.job, job.job.with_changes(state=JobState.STOPPED), None, NOW), NOW)
    with pytest.raises(TooMany):  # it was counted a moment ago
        submit("a3", ada, NOW + RECOUNT_SECONDS - 1)
    submit("a3", ada, NOW + RECOUNT_SECONDS)
    with pytest.raises(TooMany):
        submit("a4", ada, NOW + RECOUNT_SECONDS)


def test_of_sixteen_jobs_with_one_name_one_wins(repository: JobRepository) -> None:
    answers = at_once(lambda number: repository.add(a_job(submission=f"s{number}"), "{}", NOW))
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    winners = [number for number, answer in enumerate(answers) if answer is None]
    assert len(winners) == 1
    record = repository.record("job1")
    assert record is not None
    assert record.job.submission == f"s{winners[0]}"
    assert len(repository.waiting(record.job.waiting_queue)) == 1


def test_sixteen_jobs_at_once_are_all_in_order(repository: JobRepository) -> None:
    at_once(lambda number: repository.add(a_job(f"job{number}", priority=number % 4), "{}", NOW + number))
    names = [job.name for job in repository.waiting(a_job().waiting_queue)]
    assert len(names) == THREADS
    expected = sorted((a_job(f"job{n}", priority=n % 4) for n in range(THREADS)), key=lambda j: (-j.priority, j.name))
    assert names == [job.name for job in expected]


def test_a_waiting_queue_is_ordered_by_priority_then_entry_then_name(repository: JobRepository) -> None:
    for name, priority, entered in [("c", -5, 0), ("b", 10, 1), ("z", 10, 0), ("a", 10, 1), ("d", 900, 9), ("e", 0, 0)]:
        added(repository, a_job(name, priority=priority, entered=iso(NOW + entered)))
    line = a_job().waiting_queue
    assert [job.name for job in repository.waiting(line)] == ["d", "z", "a", "b", "e", "c"]
    assert [job.name for job in repository.waiting(line, 2)] == ["d", "z"]


# --- versions ----------------------------------------------------------------------------------------


def test_of_sixteen_writers_that_read_the_same_version_one_wins(repository: JobRepository) -> None:
    job = added(repository)
    transitions = [replace(state_machine.cancel(job, f"user{number}", NOW)) for number in range(THREADS)]
    answers = at_once(lambda number: repository.apply(transitions[number], NOW))
    assert sum(answer is None for answer in answers) == 1
    assert sum(isinstance(answer, Refused) for answer in answers) == THREADS - 1
    record = repository.record("job1")
    assert record is not None
    assert record.job.version == 2
    assert len(record.history) == 2
    assert repository.waiting(job.waiting_queue) == []


def test_a_stale_version_is_refused_and_nothing_of_the_transaction_stays(repository: JobRepository) -> None:
    lease = leased(repository)
    stale, fresh = added(repository), added(repository, a_job("job2"))
    repository.apply(state_machine.cancel(stale, "ada", NOW), NOW)
    call = LaunchCall(int(NOW), int(NOW))
    transitions = [state_machine.record_launch_intent(job, {"default": 1}, call, NOW) for job in (fresh, stale)]
    with pytest.raises(Refused) as refused:
        repository.commit(lease, transitions, NOW)
    assert not isinstance(refused.value, LeaseLost)
    assert repository.active() == []
    assert repository.waiting(fresh.waiting_queue) == [fresh]
    repository.commit(lease, transitions[:1], NOW)  # the token did not move


def test_a_version_of_another_submission_is_refused(repository: JobRepository) -> None:
    job = added(repository)
    with pytest.raises(Refused):
        repository.apply(state_machine.cancel(replace(job, submission="other"), "ada", NOW), NOW)


def test_a_finished_job_never_changes(repository: JobRepository) -> None:
    job = added(repository)
    repository.apply(state_machine.cancel(job, "ada", NOW), NOW)
    record = repository.record("job1")
    assert record is not None
    with pytest.raises(ValueError, match="cannot become"):
        repository.apply(JobTransition(record.job, record.job.with_changes(priority=9), None, NOW), NOW)


# --- the lease ---------------------------------------------------------------------------------------


def test_of_sixteen_that_try_the_lease_one_has_it(repository: JobRepository) -> None:
    answers = at_once(lambda number: repository.acquire(f"owner{number}", NOW))
    assert sum(isinstance(answer, Lease) for answer in answers) == 1
    assert sum(isinstance(answer, LeaseHeld) for answer in answers) == THREADS - 1


def test_a_lease_is_free_again_after_its_release_or_its_time(repository: JobRepository) -> None:
    first = leased(repository)
    assert repository.acquire("other", NOW + LEASE_SECONDS) == LeaseHeld(first.expires)
    late = repository.acquire("other", NOW + LEASE_SECONDS + 1)
    assert isinstance(late, Lease)
    repository.release(first)  # no longer its own: changes nothing
    assert repository.acquire("third", NOW + LEASE_SECONDS + 2) == LeaseHeld(late.expires)
    late.stops_repeated_at, late.bucket = 78, TokenBucket(1.5, NOW, 0.25)
    repository.release(late)
    third = repository.acquire("third", NOW + LEASE_SECONDS + 2)
    assert isinstance(third, Lease)
    assert (third.stops_repeated_at, third.bucket) == (78, TokenBucket(1.5, NOW, 0.25))
    assert third.fencing_token > late.fencing_token > first.fencing_token


def test_its_holder_may_take_it_again(repository: JobRepository) -> None:
    first = leased(repository)
    second = repository.acquire("me", NOW)
    assert isinstance(second, Lease)
    assert second.fencing_token == first.fencing_token + 1


def test_a_late_holder_changes_nothing(repository: JobRepository) -> None:
    job = added(repository)
    late = leased(repository)
    leased_by_other = repository.acquire("other", NOW + LEASE_SECONDS + 1)
    assert isinstance(leased_by_other, Lease)
    with pytest.raises(LeaseLost):
        repository.commit(late, [state_machine.record_launch_intent(job, {"default": 1}, LaunchCall(0, 0), NOW)], NOW)
    assert not repository.still_held(late)
    assert repository.active() == []
    repository.commit(
        leased_by_other, [state_machine.record_launch_intent(job, {"default": 1}, LaunchCall(0, 0), NOW)], NOW
    )


def test_every_transaction_raises_the_fencing_token_so_that_a_lost_write_shows(repository: JobRepository) -> None:
    lease = leased(repository)
    doubtful = replace(lease)
    first, second = added(repository), added(repository, a_job("job2"))
    repository.commit(lease, [state_machine.record_launch_intent(first, {"default": 1}, LaunchCall(0, 0), NOW)], NOW)
    with pytest.raises(LeaseLost):  # as if the answer to that commit had been lost
        repository.commit(
            doubtful, [state_machine.record_launch_intent(second, {"default": 1}, LaunchCall(0, 0), NOW)], NOW
        )
    assert repository.still_held(doubtful)
    repository.commit(
        doubtful, [state_machine.record_launch_intent(second, {"default": 1}, LaunchCall(0, 0), NOW)], NOW
    )


def test_of_sixteen_commits_under_one_fencing_token_one_wins(repository: JobRepository) -> None:
    lease = leased(repository)
    jobs = [added(repository, a_job(f"job{number}")) for number in range(THREADS)]
    transitions = [state_machine.record_launch_intent(job, {"default": 1}, LaunchCall(0, 0), NOW) for job in jobs]
    answers = at_once(lambda number: repository.commit(replace(lease), [transitions[number]], NOW))
    assert sum(answer is None for answer in answers) == 1
    assert sum(isinstance(answer, LeaseLost) for answer in answers) == THREADS - 1
    assert len(repository.active()) == 1


def test_starts_check_the_policy_that_they_were_planned_with(repository: JobRepository) -> None:
    lease = leased(repository)
    transition = state_machine.record_launch_intent(added(repository), {"default": 1}, LaunchCall(0, 0), NOW)
    with pytest.raises(Refused) as refused:
        repository.commit(lease, [transition], NOW, policy_version=3)
    assert not isinstance(refused.value, LeaseLost)
    repository.commit(lease, [transition], NOW, policy_version=0)


# --- news --------------------------------------------------------------------------------------------


def test_generations_are_counted_also_when_they_come_at_once(repository: JobRepository) -> None:
    assert repository.generation() == 0
    assert sorted(at_once(lambda _: repository.raise_generation())) == list(range(1, THREADS + 1))
    assert repository.generation() == repository.metadata().generation == THREADS


# --- lines -------------------------------------------------------------------------------------------


def test_a_job_is_always_in_exactly_one_queue(repository: JobRepository) -> None:
    lease = leased(repository)

    def lines() -> list[str]:
        rows = [*repository.active(), *repository.waiting(a_job().waiting_queue)]
        return [f"{row.state}@{row.version}" for row in rows]

    job = started(repository, lease)
    assert lines() == ["starting@2"]
    transition = state_machine.accepted(job, NOW)
    repository.commit(lease, [transition], NOW)
    assert lines() == ["running@3"]
    transition = state_machine.evict(transition.new, "job4", "preempt", NOW)
    repository.commit(lease, [transition], NOW)
    assert lines() == ["stopping@4"]
    record = repository.record("job1")
    assert record is not None
    repository.apply(state_machine.end(record, Ending("Stopped"), NOW), NOW)
    assert lines() == ["preempted@5"]
    record = repository.record("job1")
    assert record is not None
    assert record.job.attempt == 2
    assert record.attempts[0].outcome == "preempted"
    repository.apply(state_machine.cancel(record.job, "ada", NOW), NOW)
    assert lines() == []
    assert until(lambda: [job.name for job in repository.finished(10, None)[0]] == ["job1"])


def test_a_row_and_its_live_item_agree_after_every_transition(repository: JobRepository) -> None:
    lease = leased(repository)
    job = running(repository, lease)
    flagged = state_machine.cancel(job, "ada", NOW)
    repository.apply(flagged, NOW)
    record = repository.record("job1")
    assert record is not None
    assert [record.job] == repository.active() == [flagged.new]


def test_what_is_no_longer_set_is_removed(repository: JobRepository) -> None:
    lease = leased(repository)
    job = running(repository, lease)
    missing = state_machine.missing(job, NOW)
    repository.commit(lease, [missing], NOW)
    assert repository.active()[0].missing_since == int(NOW)
    repository.commit(lease, [state_machine.found_again(missing.new, NOW)], NOW)
    assert repository.active()[0].missing_since is None
    assert _record(repository).job.missing_since is None
    assert job.version + 2 == repository.active()[0].version


def test_a_very_long_history_is_cut(repository: JobRepository, database: Database) -> None:
    added(repository)
    past = [HISTORY.item(HistoryEntry(iso(NOW), "pending", 1, f"cause {number}")) for number in range(HISTORY_KEPT + 5)]
    database.tables.update(Update(database.jobs, {"jobName": "job1"}, append={"history": past}))
    record = _record(repository)
    job = record.job
    repository.apply(JobTransition(job, job.transition(NOW, JobState.PENDING), "last", NOW, record=record), NOW)
    causes = [entry.cause for entry in _record(repository).history]
    assert len(causes) == HISTORY_KEPT + 1
    assert causes[-1] == "last"
    assert "submitted" not in causes


def test_an_empty_waiting_queue_is_forgotten_unless_somebody_enters_it(repository: JobRepository) -> None:
    repository.register_waiting_queue("waiting#default#ml.p5.48xlarge", NOW)
    repository.forget_waiting_queue("waiting#default#ml.p5.48xlarge", int(NOW) - 1)
    assert "waiting#default#ml.p5.48xlarge" in repository.metadata().waiting_queues
    repository.forget_waiting_queue("waiting#default#ml.p5.48xlarge", int(NOW))
    assert repository.metadata().waiting_queues == {}


def test_external_jobs_are_counted_as_they_are_now_and_dropped(repository: JobRepository) -> None:
    row = ExternalTrainingJob("theirs", {"ml.p5.48xlarge": 2}, iso(NOW))
    repository.add_external(row)
    repository.add_external(replace(row, instance_counts={"ml.p5.48xlarge": 9}))
    assert repository.external() == [replace(row, instance_counts={"ml.p5.48xlarge": 9})]
    assert repository.external_job("theirs") == replace(row, instance_counts={"ml.p5.48xlarge": 9})
    assert repository.external_job("others") is None
    repository.drop_external("theirs")
    repository.drop_external("theirs")
    assert repository.external() == []
    warm = replace(row, warm=WarmPool("footprint", int(NOW) + 600))
    repository.add_external(warm)
    assert not repository.drop_external("theirs", unless_warm=True)
    assert repository.external() == [warm]
    assert repository.drop_external("theirs")


def test_hardware_failures_are_read_since_the_day_before(repository: JobRepository) -> None:
    def failure(attempt: str, at: float) -> GpuFailure:
        return GpuFailure(attempt, int(at), ("GPU-a", "GPU-b"))

    old, first, later = failure("x#1", NOW - 2 * RETURN_SECONDS), failure("x#2", NOW - 60), failure("y#1", NOW)
    assert repository.failed_gpus.record(old) == [old]
    assert repository.failed_gpus.record(first) == [first]
    assert repository.failed_gpus.record(first) == [first], "the same end again"
    assert repository.failed_gpus.record(later) == [first, later]


def test_a_backoff_is_written_with_the_transition_that_it_comes_from(repository: JobRepository) -> None:
    job = added(repository)
    backoff = CapacityBackoff("p5", until=int(NOW) + 30, since=int(NOW), failures=2, instances=4)
    transition = JobTransition(job, job.with_changes(), "refused", NOW, backoffs=(backoff,))
    repository.apply(transition, NOW)
    assert repository.metadata().capacity_backoffs == {"p5": backoff}
    with pytest.raises(Refused):  # an older version: neither is written
        repository.apply(replace(transition, backoffs=(replace(backoff, failures=3),)), NOW)
    assert repository.metadata().capacity_backoffs == {"p5": backoff}


def test_backoffs_count_in_the_size_of_a_transaction(repository: JobRepository) -> None:
    backoffs = tuple(CapacityBackoff(f"p{number}", until=int(NOW), since=int(NOW)) for number in range(40))
    jobs = [a_job(f"job{number}") for number in range(3)]
    transitions = [JobTransition(job, job.with_changes(), "x", NOW, backoffs=backoffs) for job in jobs]
    assert [len(part) for part in transactions(transitions)] == [2, 1]


def test_a_backoff_is_ended_unless_somebody_was_refused_meanwhile(repository: JobRepository) -> None:
    job = added(repository)
    read = CapacityBackoff("default/ml.p5.48xlarge", until=int(NOW) + 30, since=int(NOW))
    later = replace(read, since=int(NOW) + 20, until=int(NOW) + 60, failures=2)
    repository.apply(JobTransition(job, job.with_changes(), "refused", NOW, backoffs=(later,)), NOW)
    assert not repository.end_capacity_backoff(read)
    assert repository.metadata().capacity_backoffs == {later.capacity_key: later}
    left = replace(later, instances=2)
    assert repository.end_capacity_backoff(later, left)
    assert repository.metadata().capacity_backoffs == {later.capacity_key: left}
    assert repository.end_capacity_backoff(left)
    assert not repository.end_capacity_backoff(left)
    assert repository.metadata().capacity_backoffs == {}


def test_reservations_are_kept(repository: JobRepository) -> None:
    lease = leased(repository)
    repository.commit(lease, [], NOW, reservations={"job4": {"default": 2}})
    assert repository.metadata().reservations == {"job4": {"default": 2}}
    repository.commit(lease, [], NOW, reservations={})
    assert repository.metadata().reservations == {}


def test_finished_jobs_come_in_pages_latest_first(repository: JobRepository) -> None:
    for number in range(5):
        job = added(repository, a_job(f"job{number}"))
        repository.apply(state_machine.cancel(job, "ada", NOW + number), NOW + number)

    def listed() -> list[str]:
        names: list[str] = []
        after = None
        while True:
            page, after = repository.finished(2, after)
            names += [job.name for job in page]
            if after is None:
                return names

    assert until(lambda: listed() == ["job4", "job3", "job2", "job1", "job0"])  # the index follows in its own time


def test_thirty_two_starts_fit_in_one_transaction_and_more_are_split(repository: JobRepository) -> None:
    lease = leased(repository)
    transitions = [
        state_machine.record_launch_intent(
            added(repository, a_job(f"job{number}")), {"default": 1}, LaunchCall(0, 0), NOW
        )
        for number in range(33)
    ]
    parts = transactions(transitions)
    assert [len(part) for part in parts] == [32, 1]
    for part in parts:
        repository.commit(lease, part, NOW, policy_version=0, reservations={})
    assert len(repository.active()) == 33


def test_thirty_two_jobs_with_large_requests_start_in_one_transaction(repository: JobRepository) -> None:
    """Their rows have 8 MB, and DynamoDB takes 4 MB in a transaction: what it writes counts, not what it changes."""
    lease = leased(repository)
    jobs = [a_job(f"job{number}") for number in range(32)]
    for job in jobs:
        assert repository.add(job, "x" * 250_000, NOW) is None
    transitions = [state_machine.record_launch_intent(job, {"default": 1}, LaunchCall(0, 0), NOW) for job in jobs]
    assert transactions(transitions) == [transitions]
    repository.commit(lease, transitions, NOW)
    assert len(repository.active()) == len(jobs)


def _record(repository: JobRepository) -> Any:
    record = repository.record("job1")
    assert record is not None
    return record
