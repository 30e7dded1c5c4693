"""Outages of sites: a site does not answer for a while, and its jobs continue."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random

from local_cloud.faults.injection import Faults
from local_cloud.sites.emulated_site import EmulatedSite

SHORTEST, LONGEST = 1.0, 10.0  # seconds of a random outage
POLL = 0.1  # seconds


class Outages:
    """The sites that do not answer at present. Safe for threads.

    :param changed: `changed(out)` is called after each change, before the call that made the change returns. `out` has
        each site with an outage: True if its calls wait, False if its calls lose their connection at once.
    """

    def __init__(self, changed: Callable[[Mapping[EmulatedSite, bool]], None]) -> None:
        self._changed = changed
        self._out: dict[EmulatedSite, bool] = {}
        self._changing = threading.Lock()
        self._condition = threading.Condition()
        self._closed = False

    def begin(self, site: EmulatedSite, *, silent: bool = False) -> None:
        """Begin an outage of a site.

        :param silent: whether calls wait for the end of the outage or their own timeout. Otherwise the connection is
            closed at once. Calls do not reach the site in either case.
        """
        self._change(site, silent)

    def end(self, site: EmulatedSite) -> None:
        """End the outage of a site, if it has one."""
        self._change(site, None)

    def close(self) -> None:
        """End all outages, and let calls of `wait` return False, because the local cloud ends."""
        with self._condition:
            self._closed = True
            self._out.clear()
            self._condition.notify_all()

    def is_out(self, site: EmulatedSite) -> bool:
        """Return whether a site does not answer."""
        return site in self._out

    def is_silent(self, site: EmulatedSite) -> bool:
        """Return whether a site has an outage in which calls wait for its end."""
        return self._out.get(site, False)

    def wait(self, site: EmulatedSite) -> bool:
        """Wait until a site answers. Return False if the local cloud ends first."""
        with self._condition:
            self._condition.wait_for(lambda: self._closed or site not in self._out)
            return not self._closed

    def _change(self, site: EmulatedSite, silent: bool | None) -> None:
        with self._changing:
            with self._condition:
                if self._closed:
                    return
                if silent is None:
                    self._out.pop(site, None)
                else:
                    self._out[site] = silent
                out = dict(self._out)
                self._condition.notify_all()
            self._changed(out)


class Partition:
    """Random outages of some sites while faults are on. Each site has its own random sequence.

    The lengths of outages and of the times between them are the same for the same seed.

    :param faults: the probability of the fault `partition` is the share of the time for which each site has outages.
    """

    def __init__(self, outages: Outages, sites: Sequence[EmulatedSite], faults: Faults) -> None:
        self._outages = outages
        self._sites = sites
        self._faults = faults
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start a thread for each site, which begins and ends outages. Do nothing without the fault `partition`."""
        share = self._faults.probabilities.get("partition", 0.0)
        for site in self._sites if share else ():
            thread = threading.Thread(target=self._run, args=(site, share), name=f"partition {site}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Stop the threads and wait for them. An outage in progress ends at the latest with `Outages.close`."""
        self._closed.set()
        for thread in self._threads:
            thread.join()

    def _run(self, site: EmulatedSite, share: float) -> None:
        random = Random(f"{self._faults.seed}/partition/{site}")
        up = between(random, share) * random.random()  # the cloud starts in the middle of a time without outage
        while not self._closed.wait(POLL):
            while self._passes(up):
                self._faults.record("partition")
                self._outages.begin(site, silent=random.choice((True, False)))
                self._passes(random.uniform(SHORTEST, LONGEST))
                up = between(random, share)
                if up or not self._faults.happen:
                    self._outages.end(site)

    def _passes(self, seconds: float) -> bool:
        """Wait for `seconds` and return True. Return False as soon as faults are off or `stop` is called."""
        end = time.monotonic() + seconds
        while self._faults.happen and not self._closed.is_set():
            if (left := end - time.monotonic()) <= 0:
                return True
            self._closed.wait(min(POLL, left))
        return False


def between(random: Random, share: float) -> float:
    """Return random seconds between two outages, such that outages last for the given share of the time on average."""
    return random.uniform(SHORTEST, LONGEST) * (1 - share) / share
