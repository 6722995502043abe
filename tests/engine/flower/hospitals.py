"""Hospitals in a folder: site folders with pictures, node.toml files, and studies for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path

from demo.drawn_sites import write_drawn_site

from polyclinic.config import EngineSettings, Study, Tables, load_study
from polyclinic.config.node_file import NodeFile, load_node_file
from polyclinic.data.load import load_federation
from polyclinic.data.synthetic import federation
from polyclinic.engine.flower.coordinator import across_hospitals
from polyclinic.engine.flower.engine import FlowerEngine, requests_of
from polyclinic.engine.flower.protocol import GreetingRequest, requesting
from polyclinic.engine.flower.site_service import SiteService
from polyclinic.engine.flower.wire import Payload
from polyclinic.engine.run import runs_of
from polyclinic.engine.study import run_study
from polyclinic.engine.tensors import load_tensors
from polyclinic.runs import run_path
from tests.engine.flower.in_process import InProcessLink
from tests.federations import NEEDS, perform
from tests.small_unet import TABLES, SmallUNet

TASK = "octa"
SIDE = 32
LARGER = {"feddp": ("task.resolution=64",)}  # at 32 attention has one place, queries no effect
WEAK = dict.fromkeys(("fedicra", "fedlppa"), ("point", "scribble", "block", "mask"))  # of sites
WEAK["fedprox"] = ("box-block", "scribble", "block")
TERMS = {"crf": 0.1, "tree": 0.1, "box_tightness": 0.1, "pseudo_labels": 0.5}
EVERY_TERM = {  # those that are off by default
    "fedlppa": ("method.weak.crf=0.1",),
    "fedprox": tuple(f"training.weak.{name}={weight}" for name, weight in TERMS.items()),
}
SETTINGS = (NEEDS, LARGER, EVERY_TERM)


def greeting(study: Study, site: str = "", /, **changes) -> bytes:
    """A payload that greets a site, by default the first, on behalf of a study."""
    return Payload(requesting(GreetingRequest(**run_of(study, site, **changes)))).to_bytes()


def run_of(study: Study, site: str = "", /, **changes) -> dict:
    """What every request to a site, by default the first, says of the study's first run."""
    (run, *_) = runs_of(study, Path())
    requests = requests_of(study, run)
    return requests[site or next(iter(requests))] | changes


def leave_training_cases(folder: Path, cases: int) -> None:
    """Remove all but the first training cases of a site's folder."""
    gone = {file.stem for file in sorted((folder / "images").glob("train-*"))[cases:]}
    for case in gone:
        for part in ("images", "masks"):
            (folder / part / f"{case}.png").unlink()
    table = folder / "cases.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join(each for each in lines if each.partition(",")[0] not in gone) + "\n")


def score_more(folder: Path, cases: int, split: str = "test") -> None:
    """Move training cases of a site's folder to another split."""
    table = folder / "cases.csv"
    table.write_text(table.read_text().replace(",train\n", f",{split}\n", cases))


class Hospitals:
    """Sites on disk, and studies run with them by either engine."""

    def __init__(
        self,
        folder: Path,
        sites: int = 3,
        tables: Tables = TABLES,
        network: str = SmallUNet.name,
        train: Sequence[int] | None = None,
        task: str = TASK,
    ) -> None:
        """With `train` the sites have only so many training cases.

        Sites in processes of their own know only what is built in: give them `network="unet"`.
        """
        self.folder = folder
        self.tables = tables
        self.network = network
        self.task = task
        self.names = [site.name for site in federation(task)[:sites]]
        self._numbers = count()
        for name in self.names:
            write_drawn_site(folder / "data" / name, task, name, resolution=SIDE, size=0.2)
        for name, cases in zip(self.names, train or (), strict=False):
            leave_training_cases(folder / "data" / name, cases)

    def study(self, method: str = "fedavg", *overrides: str, then: str = "") -> Study:
        number = next(self._numbers)
        file = self.folder / f"study-{number}.toml"
        sites = "".join(f'[[site]]\nname = "{name}"\n' for name in self.names)
        file.write_text(
            f'name = "study {number}"\ntask = "{self.task}"\n[data]\nsource = "data"\n'
            f'[network]\nname = "{self.network}"\nwidth = 2\n[method]\nname = "{method}"\n'
            + (f"then = [{then}]\n" if then else "")
            + sites
        )
        small = (
            f"task.resolution={SIDE}",
            "training.batch=4",
            "training.iterations=2",
            "federation.rounds=2",
            "evaluation.every=2",
            'evaluation.metrics=["dice"]',
            "evaluation.pictures=false",
        )
        needed = chain.from_iterable(each.get(method, ()) for each in SETTINGS)
        kinds = zip(self.names, WEAK.get(method, ()), strict=False)
        labels = (f"site.{name}.labels={kind}" for name, kind in kinds)
        return load_study(file, [*small, *needed, *labels, *overrides], self.tables)

    def site_file(
        self, name: str, extra: str = "", state: str = "state", studies: str = '["*"]'
    ) -> NodeFile:
        file = self.folder / f"{name}.toml"
        scores = "" if "scores = " in extra else 'scores = "cases"\n'
        file.write_text(
            f'name = "{name}"\ndata = "data/{name}"\ndevice = "cpu"\nthreads = 1\n'
            f'state = "{state}/{name}"\n[server]\naddress = "127.0.0.1:1"\ninsecure = true\n'
            f"[allow]\ncases = 1\ndisclose = true\nstudies = {studies}\n{scores}{extra}"
        )
        return load_node_file(file)

    def services(self, extra: str = "", state: str = "state") -> list[SiteService]:
        files = (self.site_file(name, extra, state) for name in self.names)
        return [SiteService(file, self.tables) for file in files]

    def run_locally(self, study: Study) -> Path:
        """With as many threads as the sites have: sums depend on them."""
        here = EngineSettings(threads=1, device="cpu")
        study = study.model_copy(update={"engine": here})
        data = load_federation(study.task.built, study.data, study.site)
        (run,) = runs_of(study, self.folder / "local")
        list(perform(run, data))
        return run.folder.path

    def run_with(self, link: InProcessLink, study: Study, **changes) -> list:
        events = []
        self.host(study, link, watch=lambda run, event: events.append(event), **changes)
        return events

    def host(
        self,
        study: Study,
        link: InProcessLink,
        *,
        insecure: bool = False,
        tell=print,
        root: str = "runs",
        **changes,
    ) -> None:
        study = across_hospitals(study)
        engine = FlowerEngine(study, link, insecure=insecure, threads=1, tell=tell)
        run_study(study, self.folder / root, engine, **changes)

    def run_folder(self, study: Study, root: str = "runs") -> Path:
        return run_path(self.folder / root, study.name, study.method[0].title, study.seeds[0])

    def site_model(self, study: Study, name: str, state: str = "state") -> dict:
        """A site's own model, with the names that others have for us in place of what it heard."""
        folder = self.run_folder(study, f"{state}/{name}/runs")
        heard = dict(zip(run_of(study, name)["sites"], self.names, strict=True))
        tensors = load_tensors(folder / "weights" / f"{name}.safetensors")[0]
        return {
            "/".join(heard.get(part, part) for part in key.split("/")): tensor
            for key, tensor in tensors.items()
        }
