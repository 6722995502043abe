"""Every site's model at every site across hospitals: the coordinator's half.

Models pass through this machine encrypted, stay in memory for as long as it takes, and are never
written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from polyclinic.data.errors import listed
from polyclinic.engine.cross_site import write_matrix
from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.protocol import (
    GuestRequest,
    ModelRequest,
    ModelResponse,
    read_response,
)
from polyclinic.engine.flower.replies import check_disclosure
from polyclinic.engine.flower.sealing import KEYS
from polyclinic.engine.flower.wire import unpack
from polyclinic.engine.site_runner import Scoring
from polyclinic.federation.message import Message
from polyclinic.federation.method import DISCLOSED
from polyclinic.federation.server import Server
from polyclinic.federation.weights import group
from polyclinic.methods.calibration import fingerprints
from polyclinic.runs import GuestScore, RoundLine

if TYPE_CHECKING:
    from polyclinic.engine.flower.sites import FlowerSites

Model = Mapping[str, Tensor]


@dataclass(frozen=True)
class CrossSite:
    """The final models of the sites that disclose theirs, scored at these sites."""

    sites: "FlowerSites"
    server: Server
    last: int

    def run(self) -> Iterator[RoundLine]:
        """Ask for the models, let the sites score them, and write the matrix.

        A site's own model at its own cases is scored in every study. All else of a site that does
        not disclose stays blank, and its line says why.
        """
        own = self.sites.run.scores("test")
        rows: list[GuestScore] = [
            GuestScore(r.site, r.site, r.case, r.region, r.metric, r.value, r.patient) for r in own
        ]
        lines, models = [], {}
        for line, model in self._models():
            yield line
            lines.append(line)
            if model is not None:
                models[line.site] = model
        owners = [info.name for info in self.sites.scored if info.name in models]
        for owner in owners:
            others = [name for name in owners if name != owner]
            for line, found in self._scores(owner, models[owner], others):
                yield line
                lines.append(line)
                rows += [GuestScore(owner, line.site, *row) for row in found]
        write_matrix(self.sites.run, self.sites.runner.assignment, rows, lines)

    def _models(self) -> Iterator[tuple[RoundLine, Model | None]]:
        """What each site says of its own model, and the model where it discloses it."""
        sites, stage = self.sites, "disclose the model"
        asked = fingerprints(self.server, sites.scored[0])
        encoding = sites.transport.settings.encoding
        payloads = {}
        for info in sites.scored:
            common = sites.common(info.name, self.last, self.last)
            recipients = sites.witness.recipients(info.name)
            request = ModelRequest(**common, encoding=encoding, recipients=recipients)
            payload = sites.payload(info.name, request, asked)
            payloads[info.name] = payload.to_bytes()
        for site, response in sites.transport.exchange(payloads):
            try:
                _, payload = read_response(ModelResponse, site, response, sites.largest)
                message = unpack(payload)
                model = self._whole(message)
            except PayloadError as error:
                yield self._line(stage, site, missed=str(error)), None
                continue
            line = self._line(
                stage,
                site,
                down=8 * len(asked.numbers),
                up=payload.nbytes,
                extras=tuple(sorted(message.extras)),
                parts=payload.bytes_by_part(message),
            )
            yield line, model

    def _whole(self, message: Message) -> Model:
        """The weights that a site predicts with: what it disclosed, and all else the server's.

        What it disclosed is encrypted to the others; the keys that they need stand beside it.
        """
        check_disclosure(message, self.sites.runner.weights)
        disclosed = group(message.extras, DISCLOSED)
        runner = self.sites.runner
        needed = [*sorted(runner.assignment.method.predicts_with(runner.net)), KEYS]
        known = {**self.server.weights, **disclosed}
        if lacking := [name for name in needed if name not in known]:
            raise PayloadError(f"it holds back what only it has: {listed(lacking, most=3)}")
        return {name: known[name] for name in needed}

    def _scores(
        self, owner: str, model: Model, others: Sequence[str]
    ) -> Iterator[tuple[RoundLine, list[tuple[str, str, str, float, int]]]]:
        """What each of the others makes of a model on its test cases."""
        sites, stage = self.sites, f"score the model of {owner}"
        extras = {f"{DISCLOSED}/{owner}/{name}": each for name, each in model.items()}
        place = [info.name for info in sites.scored].index(owner)
        payloads, sizes = {}, {}
        for site in others:
            common = sites.common(site, self.last, self.last)
            request = GuestRequest(**common, owner=common["sites"][place])
            payload = sites.payload(site, request, Message(extras=extras))
            payloads[site], sizes[site] = payload.to_bytes(), payload.nbytes
        scoring = Scoring(self.last, "test", tuple(sites.runner.assignment.metrics))
        for site, response in sites.transport.exchange(payloads):
            found = sites.scores_in(site, response, scoring)
            down = 0 if found.missed else sizes[site]
            yield (
                self._line(stage, site, missed=found.missed, down=down),
                [(row.case, row.region, row.metric, row.value, row.patient) for row in found.rows],
            )

    def _line(self, stage: str, site: str, **more: Any) -> RoundLine:
        return RoundLine(round=self.last, stage=stage, site=site, **more)
