"""`python -m bench.method_costs [names]`: measure what methods cost beside FedAvg, into costs.json.

Each method runs three rounds on three synthetic sites, with networks as they are by default and
one pass over a site's images a round; the last round is measured, when what begins late has begun.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from polyclinic.environment import ENVIRONMENT

if __name__ == "__main__":
    os.environ.update(ENVIRONMENT)  # before torch is imported

from polyclinic.catalog import BUILT_IN
from polyclinic.config import Study, load_study
from polyclinic.data import synthetic
from polyclinic.data.cases import SiteData
from polyclinic.engine.local import LocalSites, load_data, local_sites
from polyclinic.engine.loop import RoundDone
from polyclinic.engine.run import Run, runs_of
from polyclinic.engine.states import StateFolder
from polyclinic.engine.study import carry_out
from polyclinic.engine.tensors import load_tensors
from polyclinic.federation.weights import group
from polyclinic.methods import FINISHING_STEPS, METHODS
from polyclinic.methods.costs import COSTS, FILE, Cost, Exchange
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, parameters
from polyclinic.runs import RoundLine, SiteInfo

ROUNDS = 3
STUDY = """
task = { name = "octa", resolution = 32 }
network = "NETWORK"
data = { size = 0.4, only = [SITES] }
[method]
name = "METHOD"
then = [THEN]
[training]
batch = 2
epochs = 1
[federation]
rounds = 3
[evaluation]
every = 0
choose = "last"
pictures = false
metrics = ["dice"]
[engine]
threads = 1
"""
BEHIND = "fedbn"
"""The method that finishing steps are measured behind: its sites have something to disclose."""


@dataclass
class Measured:
    """What a run told: its lines, what was received, and the bytes that were kept."""

    lines: list[RoundLine]
    received: dict[tuple[int, str], set[str]] = field(default_factory=dict)
    site: float = 0.0
    server: float = 0.0
    model: float = 0.0
    keeps: tuple[str, ...] = ()

    def exchange(self, number: int, base: Measured, but: frozenset[str] = frozenset()) -> Exchange:
        """The stages of a round, but some, over FedAvg's last round."""
        lines = [each for each in self.lines if each.round == number and each.stage not in but]
        usual = [line for line in base.lines if line.round == ROUNDS]
        received = (self.received[number, stage] for stage in {line.stage for line in lines})

        def ratio(ours: Iterable[float], theirs: Iterable[float]) -> float:
            return rounded(sum(ours) / sum(theirs))

        return Exchange(
            receives=tuple(sorted(set().union(*received))),
            sends=tuple(sorted({part for line in lines for part in line.parts})),
            down=ratio((line.down for line in lines), (line.down for line in usual)),
            up=ratio((line.up for line in lines), (line.up for line in usual)),
            steps=ratio(map(steps, lines), map(steps, usual)),
            images=ratio((line.images for line in lines), (line.images for line in usual)),
        )


def steps(line: RoundLine) -> float:
    return line.numbers["steps"]


def rounded(value: float) -> float:
    return float(f"{value:.3g}")


def cost_of(name: str) -> Cost:
    """What a method or a finishing step costs."""
    if name in FINISHING_STEPS:
        whole, alone = (measured(BEHIND, "unet", then) for then in (name, ""))
        own = frozenset(line.stage for line in alone.lines)
        return Cost(network="unet", after=whole.exchange(ROUNDS + 1, measured("fedavg"), own))
    network = network_of(name)
    found, base = measured(name, network), measured("fedavg", network)
    return Cost(
        network=network,
        before=found.exchange(0, base),
        round=found.exchange(ROUNDS, base),
        after=found.exchange(ROUNDS + 1, base),
        keeps=found.keeps,
        site_keeps=rounded(found.site / base.model),
        server_keeps=rounded(found.server / base.model),
    )


def network_of(method: str) -> str:
    """The first of these networks that the method works with."""
    sites = tuple(SiteInfo(f"site-{index}", index, "mask", 10) for index in range(3))
    for name in ("unet", "pvt_fpn"):
        built = METHODS[method]()
        try:
            built.shares(built.adapt(BUILT_IN.network[name](channels=1, classes=2), sites))
        except ValueError:
            continue
        return name
    raise ValueError(f"{method} works with none of the networks")


@cache
def measured(method: str, network: str = "unet", then: str = "") -> Measured:
    """Run a method and look at its folder as it is after the last round, and in the end."""
    with TemporaryDirectory() as folder:
        study = study_of(Path(folder), method, network, then)
        (run,) = runs_of(study, Path(folder))
        found = Measured([])
        with local_sites(run, data_of(study)) as sites:
            watch(sites, found)
            for event in carry_out(run, sites):
                if isinstance(event, RoundDone) and event.round == ROUNDS:
                    look_at_kept(run, sites, found)
        found.lines = run.folder.rounds()
    return found


def study_of(folder: Path, method: str, network: str, then: str) -> Study:
    names = (f'"{site.name}"' for site in synthetic.federation("octa")[:3])
    words = {"NETWORK": network, "METHOD": method, "SITES": ", ".join(names)}
    text = STUDY.replace("THEN", f'"{then}"' if then else "")
    for word, meant in words.items():
        text = text.replace(word, meant)
    (folder / "costs.toml").write_text(text)
    return load_study(folder / "costs.toml", [], BUILT_IN)


def data_of(study: Study) -> list[SiteData]:
    return load_data(study, None, splits_folder=None)


def watch(sites: LocalSites, found: Measured) -> None:
    """Note what messages to sites carry, which the run folder does not tell."""
    ask = sites.ask

    def asked(stage, messages, *, number, since):  # noqa: ANN001, ANN202
        names = found.received.setdefault((number, stage.name), set())
        names.update(part for message in messages.values() for part in message.names_by_part())
        return ask(stage, messages, number=number, since=since)

    sites.ask = asked


def look_at_kept(run: Run, sites: LocalSites, found: Measured) -> None:
    """What sites keep, and the bytes of their states (a mean) and of the server's."""
    states = StateFolder(run.folder.path / "checkpoint" / "sites")
    kept = [load_tensors(states.file(info.name, ROUNDS))[0] for info in sites.trained]
    server = load_tensors(StateFolder(run.folder.path / "checkpoint").file("server", ROUNDS))[0]
    memory = {name.partition("/")[0] for name in group(kept[0], "memory")}
    parts = kept_parts(sites.runner.net, sites.runner.kept)
    found.keeps = (*parts, *(f"memory {name}" for name in sorted(memory)))
    found.site = sum(each.nbytes for state in kept for each in state.values()) / len(kept)
    found.server = sum(each.nbytes for each in server.values())
    found.model = sum(each.nbytes for each in group(server, "weights").values())


def kept_parts(net: Segmenter, kept: Names) -> Iterator[str]:
    """The parts of a network of which a site keeps all parameters, and those of which some."""
    learned = parameters(net)
    parts = {part: names for part, names in sorted(net.parts().items()) if names & kept}
    whole = [part for part, names in parts.items() if (names & learned or names) <= kept]
    if "norms" in whole and parts["norms"] <= frozenset().union(
        *(parts[part] for part in whole if part != "norms")
    ):
        whole.remove("norms")  # they lie within the others
    covered = frozenset().union(*(parts[part] for part in whole))
    yield from whole
    yield from (f"some of {part}" for part, names in parts.items() if (names & kept) - covered)


def main() -> None:
    """Measure all, or those named; the file is written after each."""
    costs = COSTS.validate_json(FILE.read_bytes()) if FILE.exists() else {}
    for name in sys.argv[1:] or (*METHODS, *FINISHING_STEPS):
        costs[name] = cost_of(name)
        known = {each: costs[each] for each in (*METHODS, *FINISHING_STEPS) if each in costs}
        FILE.write_bytes(COSTS.dump_json(known, indent=1, exclude_defaults=True) + b"\n")
        print(name, flush=True)


if __name__ == "__main__":
    main()
