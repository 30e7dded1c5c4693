"""The rank that failed first."""

from job_queue.domain.failures import LoggedLine, first_failed

OTHER, FAILED = "job/algo-1-1700000000", "job/algo-2-1700000000"
WATCHDOG = "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=64)"


def test_the_rank_with_the_cause_comes_before_a_rank_with_a_consequence() -> None:
    events = [
        LoggedLine(OTHER, 5, WATCHDOG),
        LoggedLine(FAILED, 3, "[rank9]: loss 1.5"),
        LoggedLine(FAILED, 9, "[rank9]: ValueError: invalid learning rate"),
        LoggedLine(FAILED, 9, "[rank8]: loss 1.5"),
    ]
    assert first_failed(events) == ("algo-2 rank 9", ("[rank9]: loss 1.5", events[2].text))


def test_without_a_cause_the_first_consequence_decides() -> None:
    events = [LoggedLine(FAILED, 5, WATCHDOG), LoggedLine(OTHER, 4, WATCHDOG)]
    assert first_failed(events)[0] == "algo-1 rank 0"


def test_without_any_clue_the_rank_that_was_silent_first_is_returned() -> None:
    events = [LoggedLine(OTHER, 5, "loss 1.5"), LoggedLine(FAILED, 4, "loss 1.5"), LoggedLine(OTHER, 3, "loss 1.6")]
    assert first_failed(events) == ("algo-2", ("loss 1.5",))


def test_no_lines_name_no_rank() -> None:
    assert first_failed([]) == ("", ())
