"""SageMaker in several sites behind one address: each call goes to the site that its signature names."""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from local_cloud.faults.injection import Faults
from local_cloud.faults.outages import Outages, Partition
from local_cloud.sagemaker.events import Event, Target
from local_cloud.sagemaker.remote_debug.service import SessionService
from local_cloud.sagemaker.training_service import TrainingService
from local_cloud.sagemaker.wire import Api, ConnectionAbort, EmulatedError, SignedCall
from local_cloud.sites.emulated_site import EmulatedSite
from local_cloud.sites.questions import ACCOUNT, FORWARD, OUTAGES, Questions

_CREDENTIAL = re.compile(r"Credential=([^/,]+)/[0-9]{8}/([^/]+)/")
# AWS returns this error in a region that the account has not enabled.
_NO_SUCH_SITE = EmulatedError("UnrecognizedClientException", "The security token included in the request is invalid.")

MakeService = Callable[[EmulatedSite, Mapping[str, Any]], TrainingService]


class OtherSites:
    """The sites other than the home site, their outages, and the forwarding of their events to the home bus.

    :param sites: all sites, the home site first.
    :param home: the service of the home site, whose server gets the calls for all sites.
    :param make: `make(site, options)` makes the service of another site, with further options of TrainingService.
    :param own_rules: whether events go through the rules of their site. Otherwise the home site delivers each event.
    """

    def __init__(
        self,
        sites: Sequence[EmulatedSite],
        home: TrainingService,
        make: MakeService,
        questions: Questions,
        faults: Faults,
        *,
        own_rules: bool,
    ) -> None:
        self._home, *self._sites = sites
        self._questions = questions
        self._several_accounts = len({site.account for site in sites}) > 1
        self._accounts: dict[str, str] = {}  # access key -> account, which never changes
        self._lock = threading.Lock()
        self.outages = Outages(self._report_outages)
        self._partition = Partition(self.outages, self._sites, faults)
        self._home_service = home
        self.services = {self._home: home}
        for site in self._sites:
            self.services[site] = make(site, self._options(site, own_rules=own_rules))
        home.server.choose = self._chooser({site: service.api for site, service in self.services.items()})

    def share(self, sessions: SessionService) -> None:
        """Let the home site's Session Manager also serve the calls for other sites."""
        apis = {self._home: sessions.api}
        for site in self._sites:
            service = self.services[site]
            apis[site] = sessions.api_for(service.instance, service.permissions)
        sessions.server.choose = self._chooser(apis)

    def start(self) -> None:
        """Start the services of the other sites, and random outages."""
        for site in self._sites:
            self.services[site].start()
        self._partition.start()

    def stop(self) -> None:
        """End all outages and stop the services of the other sites."""
        self._partition.stop()
        self.outages.close()
        for site in self._sites:
            self.services[site].stop()

    def _options(self, site: EmulatedSite, *, own_rules: bool) -> dict[str, Any]:
        """Return the options of a site's service: the home site's server, and the way of events to the home site."""

        def forward(event: Event, target: Target) -> None:
            question = {"role": target.get("RoleArn", ""), "bus": self._home.bus_arn}
            kinds = {"source": event["source"], "detail-type": event["detail-type"]}
            if refused := self._questions.ask(FORWARD, question | kinds).get("refused"):
                raise PermissionError(refused)
            deliver(event)

        def deliver(event: Event) -> None:
            if self.outages.wait(site):
                self._home_service.deliver(event)

        delivery = {"buses": {self._home.bus_arn: forward}} if own_rules else {"deliver": deliver}
        return {"front": self._home_service.server, **delivery}

    def _chooser(self, apis: Mapping[EmulatedSite, Api]) -> Callable[[SignedCall], Api]:
        """Return a function for `AwsJsonServer.choose`: it returns the API of the site that a signature names."""
        guarded = {site: api if site == self._home else self._guarded(site, api) for site, api in apis.items()}

        def choose(call: SignedCall) -> Api:
            site = self._site_of(call)
            if site not in guarded:
                raise _NO_SUCH_SITE
            self._check(site)
            return guarded[site]

        return choose

    def _guarded(self, site: EmulatedSite, api: Api) -> Api:
        """Return an API that closes the connection instead of answering if an outage has begun during the call."""

        def handle(operation: str, request: dict[str, Any]) -> dict[str, Any]:
            answer = api.handle(operation, request)
            self._check(site)
            return answer

        return replace(api, handle=handle)

    def _check(self, site: EmulatedSite) -> None:
        """Raise ConnectionAbort if a site has an outage: at once or, in a silent outage, when the outage has ended."""
        if self.outages.is_out(site):
            if self.outages.is_silent(site):
                self.outages.wait(site)
            raise ConnectionAbort

    def _site_of(self, call: SignedCall) -> EmulatedSite:
        """Return the site of a call. A call without a well-formed signature goes to the home site, which refuses it."""
        authorization = next((value for name, value in call.headers if name.lower() == "authorization"), "")
        if not (found := _CREDENTIAL.search(authorization)):
            return self._home
        return EmulatedSite(self._account_of(found[1]) if self._several_accounts else self._home.account, found[2])

    def _account_of(self, key: str) -> str:
        """Return the account of an access key; the home account, which refuses the call, if the key is unknown."""
        with self._lock:
            if known := self._accounts.get(key):
                return known
        try:
            answer = self._questions.ask(ACCOUNT, {"key": key})
        except OSError as error:  # ministack is overloaded, as AWS can be
            message = f"The account of the access key cannot be found: {error}"
            raise EmulatedError("ServiceUnavailable", message, HTTPStatus.SERVICE_UNAVAILABLE) from error
        if answer["known"]:
            with self._lock:
                self._accounts[key] = answer["account"]
        return str(answer["account"])

    def _report_outages(self, out: Mapping[EmulatedSite, bool]) -> None:
        """Report all sites with an outage to the server process."""
        self._questions.ask(OUTAGES, {"out": [(site.account, site.region, silent) for site, silent in out.items()]})
