"""What the store promises, on both databases."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from job_queue import lifecycle
from job_queue.control import LINES_OF_PROJECT, Lease
from job_queue.errors import LeaseLost, Refused, TooMany
from job_queue.lifecycle import Ending, Move
from job_queue.pauses import Pause
from job_queue.records import HISTORY_KEPT, Call, ExternalJob, Job, iso, waiting_line
from job_queue.scheduler import JobState
from job_queue.store import Store, transactions
from tests.contract.conftest import HISTORY_SECONDS
from tests.jobs import NOW, a_job

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


def leased(store: Store, owner: str = "me") -> Lease:
    lease = store.acquire(owner, NOW, NOW + 60)
    assert lease is not None
    return lease


def added(store: Store, job: Job | None = None) -> Job:
    job = job or a_job()
    assert store.add(job, "{}", NOW) is None
    return job


def started(store: Store, lease: Lease, job: Job | None = None) -> Job:
    move = lifecycle.begin(added(store, job), {"default": 1}, Call(int(NOW), int(NOW) + 1000), NOW)
    store.commit(lease, [move], NOW)
    return move.new


def running(store: Store, lease: Lease, job: Job | None = None) -> Job:
    move = lifecycle.accepted(started(store, lease, job), NOW)
    store.commit(lease, [move], NOW)
    return move.new


# --- jobs --------------------------------------------------------------------------------------------


def test_an_added_job_stands_in_its_line_as_it_was_given(store: Store) -> None:
    job = a_job(max_runtime=60, demand=({"a": 1, "b": 2}, {"c": 3}))
    assert store.add(job, '{"x": 1}', NOW) is None
    record = store.record("job1")
    assert record is not None
    assert (record.job, record.details) == (job, '{"x": 1}')
    assert [entry["cause"] for entry in record.history] == ["submitted"]
    assert store.waiting(job.line) == [job]
    assert set(store.control().lines) == {job.line}


def test_a_taken_name_gives_the_job_that_has_it_and_changes_nothing(store: Store) -> None:
    job = added(store)
    other = replace(job, submission="other", priority=7)
    existing = store.add(other, "{}", NOW)
    assert existing is not None
    assert existing.job == job
    assert store.waiting(job.line) == [job]


def test_an_expired_row_counts_as_absent_but_not_before_its_time(store: Store) -> None:
    job = added(store)
    store.move(lifecycle.cancel(job, "ada", NOW), NOW)
    again = replace(job, submission="later")
    assert store.add(again, "{}", NOW + HISTORY_SECONDS) is not None
    assert store.add(again, "{}", NOW + HISTORY_SECONDS + 1) is None
    record = store.record("job1")
    assert record is not None
    assert (record.job.submission, record.job.state, record.expires) == ("later", JobState.PENDING, None)


def test_a_project_has_a_bounded_number_of_lines(store: Store) -> None:
    def job(number: int, project: str = "vision") -> Job:
        return a_job(f"{project}{number}", project=project, line=waiting_line(project, ({f"type{number}": 1},)))

    for number in range(LINES_OF_PROJECT):
        added(store, job(number))
    with pytest.raises(TooMany, match="vision has 50"):
        store.add(job(LINES_OF_PROJECT), "{}", NOW)
    assert store.record(f"vision{LINES_OF_PROJECT}") is None
    added(store, replace(job(0), name="again"))
    added(store, job(0, "nlp"))
    store.forget_line(job(7).line, int(NOW))
    added(store, job(LINES_OF_PROJECT))


def test_all_projects_together_have_a_bounded_number_of_lines(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("job_queue.control.LINES_IN_ALL", 3)
    for number in range(3):
        added(store, a_job(f"job{number}", project=f"p{number}", line=waiting_line(f"p{number}", ({"type": 1},))))
    with pytest.raises(TooMany, match="all projects have 3"):
        store.add(a_job("one-more", project="p4", line=waiting_line("p4", ({"type": 1},))), "{}", NOW)


def test_of_sixteen_jobs_with_one_name_one_wins(store: Store) -> None:
    answers = at_once(lambda number: store.add(a_job(submission=f"s{number}"), "{}", NOW))
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    winners = [number for number, answer in enumerate(answers) if answer is None]
    assert len(winners) == 1
    record = store.record("job1")
    assert record is not None
    assert record.job.submission == f"s{winners[0]}"
    assert len(store.waiting(record.job.line)) == 1


def test_sixteen_jobs_at_once_all_stand_in_order(store: Store) -> None:
    at_once(lambda number: store.add(a_job(f"job{number}", priority=number % 4), "{}", NOW + number))
    names = [job.name for job in store.waiting(a_job().line)]
    assert len(names) == THREADS
    expected = sorted((a_job(f"job{n}", priority=n % 4) for n in range(THREADS)), key=lambda j: (-j.priority, j.name))
    assert names == [job.name for job in expected]


def test_a_line_is_ordered_by_priority_then_entry_then_name(store: Store) -> None:
    for name, priority, entered in [("c", -5, 0), ("b", 10, 1), ("z", 10, 0), ("a", 10, 1), ("d", 900, 9), ("e", 0, 0)]:
        added(store, a_job(name, priority=priority, entered=iso(NOW + entered)))
    line = a_job().line
    assert [job.name for job in store.waiting(line)] == ["d", "z", "a", "b", "e", "c"]
    assert [job.name for job in store.waiting(line, 2)] == ["d", "z"]


# --- versions ----------------------------------------------------------------------------------------


def test_of_sixteen_writers_that_read_the_same_version_one_wins(store: Store) -> None:
    job = added(store)
    moves = [replace(lifecycle.cancel(job, f"user{number}", NOW)) for number in range(THREADS)]
    answers = at_once(lambda number: store.move(moves[number], NOW))
    assert sum(answer is None for answer in answers) == 1
    assert sum(isinstance(answer, Refused) for answer in answers) == THREADS - 1
    record = store.record("job1")
    assert record is not None
    assert record.job.version == 2
    assert len(record.history) == 2
    assert store.waiting(job.line) == []


def test_a_stale_version_is_refused_and_nothing_of_the_transaction_stays(store: Store) -> None:
    lease = leased(store)
    stale, fresh = added(store), added(store, a_job("job2"))
    store.move(lifecycle.cancel(stale, "ada", NOW), NOW)
    call = Call(int(NOW), int(NOW))
    moves = [lifecycle.begin(job, {"default": 1}, call, NOW) for job in (fresh, stale)]
    with pytest.raises(Refused) as refused:
        store.commit(lease, moves, NOW)
    assert not isinstance(refused.value, LeaseLost)
    assert store.active() == []
    assert store.waiting(fresh.line) == [fresh]
    store.commit(lease, moves[:1], NOW)  # the token did not move


def test_a_version_of_another_submission_is_refused(store: Store) -> None:
    job = added(store)
    with pytest.raises(Refused):
        store.move(lifecycle.cancel(replace(job, submission="other"), "ada", NOW), NOW)


def test_a_finished_job_never_changes(store: Store) -> None:
    job = added(store)
    store.move(lifecycle.cancel(job, "ada", NOW), NOW)
    record = store.record("job1")
    assert record is not None
    with pytest.raises(ValueError, match="cannot become"):
        store.move(Move(record.job, record.job.touched(priority=9), None), NOW)


# --- the lease ---------------------------------------------------------------------------------------


def test_of_sixteen_that_try_the_lease_one_has_it(store: Store) -> None:
    answers = at_once(lambda number: store.acquire(f"owner{number}", NOW, NOW + 60))
    assert sum(isinstance(answer, Lease) for answer in answers) == 1
    assert sum(answer is None for answer in answers) == THREADS - 1


def test_a_lease_is_free_again_after_its_release_or_its_time(store: Store) -> None:
    first = leased(store)
    assert store.acquire("other", NOW + 60, NOW + 120) is None
    late = store.acquire("other", NOW + 61, NOW + 120)
    assert late is not None
    store.release(first)  # no longer its own: changes nothing
    assert store.acquire("third", NOW + 62, NOW + 120) is None
    late.reconciled = 77
    store.release(late)
    third = store.acquire("third", NOW + 62, NOW + 120)
    assert third is not None
    assert third.reconciled == 77
    assert third.token > late.token > first.token


def test_its_holder_may_take_it_again(store: Store) -> None:
    first = leased(store)
    second = store.acquire("me", NOW, NOW + 60)
    assert second is not None
    assert second.token == first.token + 1


def test_a_late_holder_changes_nothing(store: Store) -> None:
    job = added(store)
    late = leased(store)
    leased_by_other = store.acquire("other", NOW + 61, NOW + 120)
    assert leased_by_other is not None
    with pytest.raises(LeaseLost):
        store.commit(late, [lifecycle.begin(job, {"default": 1}, Call(0, 0), NOW)], NOW)
    assert not store.still_held(late)
    assert store.active() == []
    store.commit(leased_by_other, [lifecycle.begin(job, {"default": 1}, Call(0, 0), NOW)], NOW)


def test_every_transaction_moves_the_token_so_that_a_lost_write_shows(store: Store) -> None:
    lease = leased(store)
    doubtful = replace(lease)
    first, second = added(store), added(store, a_job("job2"))
    store.commit(lease, [lifecycle.begin(first, {"default": 1}, Call(0, 0), NOW)], NOW)
    with pytest.raises(LeaseLost):  # as if the answer to that commit had been lost
        store.commit(doubtful, [lifecycle.begin(second, {"default": 1}, Call(0, 0), NOW)], NOW)
    assert store.still_held(doubtful)
    store.commit(doubtful, [lifecycle.begin(second, {"default": 1}, Call(0, 0), NOW)], NOW)


def test_of_sixteen_commits_under_one_token_one_wins(store: Store) -> None:
    lease = leased(store)
    jobs = [added(store, a_job(f"job{number}")) for number in range(THREADS)]
    moves = [lifecycle.begin(job, {"default": 1}, Call(0, 0), NOW) for job in jobs]
    answers = at_once(lambda number: store.commit(replace(lease), [moves[number]], NOW))
    assert sum(answer is None for answer in answers) == 1
    assert sum(isinstance(answer, LeaseLost) for answer in answers) == THREADS - 1
    assert len(store.active()) == 1


def test_starts_check_the_policy_that_they_were_planned_with(store: Store) -> None:
    lease = leased(store)
    move = lifecycle.begin(added(store), {"default": 1}, Call(0, 0), NOW)
    with pytest.raises(Refused) as refused:
        store.commit(lease, [move], NOW, policy_version=3)
    assert not isinstance(refused.value, LeaseLost)
    store.commit(lease, [move], NOW, policy_version=0)


# --- news --------------------------------------------------------------------------------------------


def test_news_are_counted_also_when_they_come_at_once(store: Store) -> None:
    assert store.news() == 0
    assert sorted(at_once(lambda _: store.add_news())) == list(range(1, THREADS + 1))
    assert store.news() == store.control().news == THREADS


# --- lines -------------------------------------------------------------------------------------------


def test_a_job_is_always_in_exactly_one_line(store: Store) -> None:
    lease = leased(store)

    def lines() -> list[str]:
        rows = [*store.active(), *store.waiting(a_job().line)]
        return [f"{row.state}@{row.version}" for row in rows]

    job = started(store, lease)
    assert lines() == ["starting@2"]
    move = lifecycle.accepted(job, NOW)
    store.commit(lease, [move], NOW)
    assert lines() == ["running@3"]
    move = lifecycle.evict(move.new, "job4", "preempt", NOW)
    store.commit(lease, [move], NOW)
    assert lines() == ["stopping@4"]
    record = store.record("job1")
    assert record is not None
    store.move(lifecycle.end(record, Ending("Stopped"), NOW), NOW)
    assert lines() == ["preempted@5"]
    record = store.record("job1")
    assert record is not None
    assert record.job.attempt == 2
    assert record.attempts[0]["outcome"] == "preempted"
    store.move(lifecycle.cancel(record.job, "ada", NOW), NOW)
    assert lines() == []
    assert [job.name for job in store.finished(10, None)[0]] == ["job1"]


def test_a_row_and_its_line_row_agree_after_every_move(store: Store) -> None:
    lease = leased(store)
    job = running(store, lease)
    flagged = lifecycle.cancel(job, "ada", NOW)
    store.move(flagged, NOW)
    record = store.record("job1")
    assert record is not None
    assert [record.job] == store.active() == [flagged.new]


def test_what_is_no_longer_set_is_removed(store: Store) -> None:
    lease = leased(store)
    job = running(store, lease)
    missing = lifecycle.missing(_record(store), NOW)
    store.commit(lease, [missing], NOW)
    assert store.active()[0].missing_since == int(NOW)
    store.commit(lease, [lifecycle.found_again(missing.new)], NOW)
    assert store.active()[0].missing_since is None
    assert _record(store).job.missing_since is None
    assert job.version + 2 == store.active()[0].version


def test_a_very_long_history_is_cut(store: Store) -> None:
    added(store)
    for number in range(HISTORY_KEPT + 5):
        job = _record(store).job
        store.move(Move(job, job.then(NOW, JobState.PENDING), f"cause {number}"), NOW)
    record = _record(store)
    job = record.job
    store.move(Move(job, job.then(NOW, JobState.PENDING), "last", record=record), NOW)
    causes = [entry["cause"] for entry in _record(store).history]
    assert len(causes) == HISTORY_KEPT + 1
    assert causes[-1] == "last"
    assert "submitted" not in causes


def test_an_empty_line_is_forgotten_unless_somebody_enters_it(store: Store) -> None:
    store.enter_line("waiting#default#ml.p5.48xlarge", NOW)
    store.forget_line("waiting#default#ml.p5.48xlarge", int(NOW) - 1)
    assert "waiting#default#ml.p5.48xlarge" in store.control().lines
    store.forget_line("waiting#default#ml.p5.48xlarge", int(NOW))
    assert store.control().lines == {}


def test_external_jobs_are_counted_as_they_are_now_and_dropped(store: Store) -> None:
    row = ExternalJob("theirs", {"ml.p5.48xlarge": 2}, iso(NOW))
    store.add_external(row)
    store.add_external(replace(row, demand={"ml.p5.48xlarge": 9}))
    assert store.external() == [replace(row, demand={"ml.p5.48xlarge": 9})]
    assert store.external_job("theirs") == replace(row, demand={"ml.p5.48xlarge": 9})
    assert store.external_job("others") is None
    store.drop_external("theirs")
    store.drop_external("theirs")
    assert store.external() == []


def test_a_pause_is_written_with_the_transition_that_it_comes_from(store: Store) -> None:
    job = added(store)
    pause = Pause("p5", until=int(NOW) + 30, since=int(NOW), failures=2, instances=4)
    move = Move(job, job.touched(), "refused", pauses=(pause,))
    store.move(move, NOW)
    assert store.control().pauses == {"p5": pause}
    with pytest.raises(Refused):  # an older version: neither is written
        store.move(replace(move, pauses=(replace(pause, failures=3),)), NOW)
    assert store.control().pauses == {"p5": pause}


def test_pauses_count_in_the_size_of_a_transaction(store: Store) -> None:
    pauses = tuple(Pause(f"p{number}", until=int(NOW), since=int(NOW)) for number in range(40))
    jobs = [a_job(f"job{number}") for number in range(3)]
    moves = [Move(job, job.touched(), "x", pauses=pauses) for job in jobs]
    assert [len(part) for part in transactions(moves)] == [2, 1]


def test_a_pause_is_ended_unless_somebody_was_refused_meanwhile(store: Store) -> None:
    job = added(store)
    read = Pause("default/ml.p5.48xlarge", until=int(NOW) + 30, since=int(NOW))
    later = replace(read, since=int(NOW) + 20, until=int(NOW) + 60, failures=2)
    store.move(Move(job, job.touched(), "refused", pauses=(later,)), NOW)
    assert not store.end_pause(read)
    assert store.control().pauses == {later.place: later}
    left = replace(later, instances=2)
    assert store.end_pause(later, left)
    assert store.control().pauses == {later.place: left}
    assert store.end_pause(left)
    assert not store.end_pause(left)
    assert store.control().pauses == {}


def test_reservations_are_kept(store: Store) -> None:
    lease = leased(store)
    store.commit(lease, [], NOW, reservations={"job4": {"default": 2}})
    assert store.control().reservations == {"job4": {"default": 2}}
    store.commit(lease, [], NOW, reservations={})
    assert store.control().reservations == {}


def test_finished_jobs_come_in_pages_latest_first(store: Store) -> None:
    for number in range(5):
        job = added(store, a_job(f"job{number}"))
        store.move(lifecycle.cancel(job, "ada", NOW + number), NOW + number)
    names: list[str] = []
    after = None
    while True:
        page, after = store.finished(2, after)
        names += [job.name for job in page]
        if after is None:
            break
    assert names == ["job4", "job3", "job2", "job1", "job0"]


def test_thirty_two_starts_fit_in_one_transaction_and_more_are_split(store: Store) -> None:
    lease = leased(store)
    moves = [
        lifecycle.begin(added(store, a_job(f"job{number}")), {"default": 1}, Call(0, 0), NOW) for number in range(33)
    ]
    parts = transactions(moves)
    assert [len(part) for part in parts] == [32, 1]
    for part in parts:
        store.commit(lease, part, NOW, policy_version=0, reservations={})
    assert len(store.active()) == 33


def _record(store: Store) -> Any:
    record = store.record("job1")
    assert record is not None
    return record
