"""The greeting of a run: every site agrees to it and tells what it has, or says why not."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.protocol import (
    GreetingRequest,
    GreetingResponse,
    Waits,
    check_about,
    read_response,
    requesting,
)
from polyclinic.engine.flower.transport import Failure, Transport
from polyclinic.engine.flower.wire import Payload
from polyclinic.engine.flower.witness import Witness
from polyclinic.engine.run import Run
from polyclinic.engine.study import refuse_no_validation
from polyclinic.runs import RunError, SiteInfo
from polyclinic.runs.files import plain

ASK_AGAIN = 30.0  # seconds before a site that waits for an approval is asked once more


def greet(
    run: Run,
    requests: Mapping[str, Mapping[str, Any]],
    transport: Transport,
    witness: Witness,
    tell: Callable[[str], None],
) -> list[SiteInfo]:
    """What each site has, once it has agreed to the run; an error names all that have not.

    `requests` is what every request says to each site. A site that a resumed run knows may be away
    for the moment.
    """
    names = list(requests)
    known: dict[str, SiteInfo] = {}
    with suppress(RunError):  # where nothing can be read of the run, no site may be away
        known = {site.name: site for site in run.folder.about().sites}
    settings = transport.settings
    patience = settings.patience if set(names) <= set(known) else settings.deadline
    payloads = {
        site: Payload({**requesting(GreetingRequest(**request)), **witness.header(site)}).to_bytes()
        for site, request in requests.items()
    }
    present, refusals = _greeted_by_all(payloads, transport, patience, run.study.packages, tell)
    for name, response in present.items():
        witness.know(name, response.sealing)
    away = {name: known[name] for name in refusals if name in known}
    if len(away) < len(refusals) or len(present) < settings.quorum * len(names):
        lines = [f"  {name}: {reason}" for name, reason in refusals.items()]
        raise RunError("\n".join(["the study cannot begin, because of these sites:", *lines]))
    if not away:
        scorable = sum(each.scorable for each in present.values())
        refuse_no_validation(run.study, scorable, sum(each.about.val for each in present.values()))
    found = {name: response.about for name, response in present.items()} | away
    return [replace(found[name], index=index) for index, name in enumerate(names)]


def _greeted_by_all(
    payloads: Mapping[str, bytes],
    transport: Transport,
    patience: float,
    packages: Mapping[str, str],
    tell: Callable[[str], None],
) -> tuple[dict[str, GreetingResponse], dict[str, str]]:
    """The greetings, and why others refuse; those whose people must approve are asked again."""
    present: dict[str, GreetingResponse] = {}
    refusals: dict[str, str] = {}
    end, open_now = transport.clock() + patience, dict(payloads)
    while open_now:
        replies = dict(transport.exchange(open_now, patience=patience))
        waiting = {}
        for name, reply in replies.items():
            try:
                present[name] = _greeted(name, reply, packages)
                refusals.pop(name, None)
            except PayloadError as error:
                if isinstance(error, Waits):
                    waiting[name] = payloads[name]
                    if name not in refusals:
                        tell(f"{name} waits until its people approve the study")
                refusals[name] = str(error)
        open_now = waiting if transport.clock() + ASK_AGAIN < end else {}
        if open_now:
            transport.sleep(ASK_AGAIN)
    order = list(payloads)
    return present, dict(sorted(refusals.items(), key=lambda each: order.index(each[0])))


def _greeted(site: str, reply: bytes | Failure, packages: Mapping[str, str]) -> GreetingResponse:
    response, _ = read_response(GreetingResponse, site, reply, most=0)
    theirs = {"Polyclinic": response.version, **response.packages}
    for package, here in {"Polyclinic": version("polyclinic"), **packages}.items():
        if theirs.get(package) != here:
            there = plain(str(theirs.get(package)))
            raise PayloadError(f"it runs {package} {there}, and the coordinator {here}")
    check_about(site, response.about)
    return response
