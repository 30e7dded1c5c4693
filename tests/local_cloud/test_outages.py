"""Outages of sites by themselves, and the options that name sites."""

import threading
from collections.abc import Callable, Mapping
from random import Random

import pytest

from local_cloud.__main__ import main
from local_cloud.faults.injection import Faults
from local_cloud.faults.outages import LONGEST, SHORTEST, Outages, Partition, between
from local_cloud.sites.emulated_site import EmulatedSite, all_sites, parse_accounts, parse_regions
from tests.waiting import PATIENCE, until

OHIO = EmulatedSite("000000000000", "us-east-2")
FAR = EmulatedSite("111111111111", "us-east-2")


class Told:
    """The sites that did not answer, after each change."""

    def __init__(self) -> None:
        self.changes: list[dict[EmulatedSite, bool]] = []

    def __call__(self, out: Mapping[EmulatedSite, bool]) -> None:
        self.changes.append(dict(out))


def test_sites_are_all_pairs_and_the_home_site_is_the_first() -> None:
    assert [str(site) for site in all_sites(("us-east-1", "eu-west-1"), 2)] == [
        "000000000000/us-east-1",
        "000000000000/eu-west-1",
        "111111111111/us-east-1",
        "111111111111/eu-west-1",
    ]
    assert [site.account for site in all_sites(("us-east-1",), 10)][-1] == "999999999999"


def test_lists_of_regions_and_numbers_of_accounts() -> None:
    assert parse_regions("us-east-1, us-gov-west-1") == ("us-east-1", "us-gov-west-1")
    assert parse_accounts("2") == 2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--regions", "ohio"], "'ohio' is not the name of a region, such as us-east-2"),
        (["--regions", ""], "'' is not the name of a region"),
        (["--regions", "us-east-1,us-east-1"], "us-east-1 is given twice"),
        (["--regions", ",".join(f"us-east-{number}" for number in range(1, 12))], "from 1 to 10 regions, not 11"),
        (["--accounts", "0"], "a local cloud has from 1 to 10 accounts, not 0"),
        (["--accounts", "two"], "'two' is not a number from 1 to 10"),
        (["--faults", "partition=0.1"], "The fault partition needs another site"),
    ],
)
def test_options_with_a_mistake(options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["exec", *options, "--", "true"])
    assert raised.value.code == 2
    assert complaint in capsys.readouterr().err


def test_each_change_is_told_before_the_call_returns() -> None:
    told = Told()
    outages = Outages(told)
    outages.begin(OHIO)
    outages.begin(FAR, silent=True)
    assert (outages.is_out(OHIO), outages.is_silent(OHIO)) == (True, False)
    assert (outages.is_out(FAR), outages.is_silent(FAR)) == (True, True)
    outages.end(OHIO)
    outages.end(OHIO)
    assert not outages.is_out(OHIO)
    assert told.changes == [{OHIO: False}, {OHIO: False, FAR: True}, {FAR: True}, {FAR: True}]


def test_a_wait_ends_with_the_outage_or_with_the_cloud() -> None:
    outages = Outages(lambda out: None)
    assert outages.wait(OHIO)
    answers: list[bool] = []
    ends: list[Callable[[], None]] = [lambda: outages.end(OHIO), outages.close]
    for end in ends:
        outages.begin(OHIO)
        waiting = threading.Thread(target=lambda: answers.append(outages.wait(OHIO)))
        waiting.start()
        end()
        waiting.join(PATIENCE)
    assert answers == [True, False]
    outages.begin(OHIO)
    assert not outages.is_out(OHIO)  # nothing begins after the end


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_outages_have_their_share_of_the_time(share: float) -> None:
    random = Random(7)
    up = sum(between(random, share) for _ in range(10_000))
    out = sum(random.uniform(SHORTEST, LONGEST) for _ in range(10_000))
    assert out / (up + out) == pytest.approx(share, rel=0.05)


def test_random_outages_happen_only_with_the_faults() -> None:
    told = Told()
    faults = Faults({"partition": 1.0})
    outages = Outages(told)
    partition = Partition(outages, [OHIO, FAR], faults)
    partition.start()
    try:
        assert f"partition {OHIO}" in [thread.name for thread in threading.enumerate()]
        assert not told.changes
        faults.begin()
        until(lambda: outages.is_out(OHIO) and outages.is_out(FAR))
        assert faults.counts["partition"] >= 2
        faults.end()
        until(lambda: not outages.is_out(OHIO) and not outages.is_out(FAR))
    finally:
        partition.stop()


def test_without_the_fault_nothing_is_started() -> None:
    partition = Partition(Outages(lambda out: None), [OHIO], Faults({"lost": 1.0}))
    partition.start()
    assert f"partition {OHIO}" not in [thread.name for thread in threading.enumerate()]
    partition.stop()
