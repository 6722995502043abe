"""A whole federation of real processes on the loopback interface, TLS and keys as deployed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from polyclinic.config import Study, to_toml
from polyclinic.config.coordinator_file import ServerCertificates
from polyclinic.engine.flower import commands
from polyclinic.engine.flower.deploy.folder import INNER_PORT, Deployment, write_deployment
from polyclinic.engine.flower.deploy.keys import make_key
from polyclinic.engine.flower.processes import free_port, listens
from polyclinic.engine.tensors import load_tensors
from polyclinic.runs import RunFolder, run_path
from tests.engine.flower.hospitals import Hospitals
from tests.engine.flower.tampered import PROGRAM
from tests.federations import equal

POLYCLINIC = str(Path(sysconfig.get_path("scripts")) / "polyclinic")
PROJECT = Path(__file__).parents[3]


class Federation:
    """A coordinator's folder and one for each hospital, and the processes started from them."""

    def __init__(self, hospitals: Hospitals) -> None:
        self.hospitals = hospitals
        self.port = free_port()
        self.folder = hospitals.folder
        self.deployment = Deployment(self.folder / "deployment")
        study = hospitals.study()
        address = f"127.0.0.1:{self.port}"
        write_deployment(study, address, self.deployment, days=30)
        self.coordinator = self.deployment.coordinator / "coordinator.toml"
        _edit(self.coordinator, {f"port = {INNER_PORT}": f"port = {self.port}"})
        for name in hospitals.names:
            (self.deployment.site(name) / "data").symlink_to(hospitals.folder / "data" / name)
            self.allow(name, {"threads = 0": "threads = 1", "cases = 5": "cases = 1"})
            self.allow(name, {'methods = ["fedavg"]': 'methods = ["*"]'})
            self.allow(name, {"disclose = false": "disclose = true"})
            self.allow(name, {"studies = []": 'studies = ["*"]'})
        self.running: dict[str, subprocess.Popen] = {}

    def allow(self, name: str, changes: dict[str, str]) -> None:
        """Edit a hospital's node.toml."""
        _edit(self.deployment.site(name) / "node.toml", changes)

    def state(self, name: str) -> Path:
        return self.deployment.site(name) / "state"

    def start_superlink(self) -> None:
        """A SuperLink of its own, which several studies can join."""
        keys = self.deployment.coordinator / "certificates"
        certificates = ServerCertificates(
            ca=keys / "ca.crt", certificate=keys / "server.crt", key=keys / "server.key"
        )
        command = commands.superlink(
            "127.0.0.1", self.port, self.folder / "superlink.db", certificates
        )
        self._start("superlink", command, commands.environment(self.folder / "flower"))
        wait_until(lambda: listens("127.0.0.1", self.port))

    def start_site(self, name: str, *, tampered: bool = False) -> None:
        file = self.deployment.site(name) / "node.toml"
        program = PROGRAM if tampered else (POLYCLINIC,)
        folders = filter(None, (str(PROJECT), os.environ.get("PYTHONPATH")))
        path = {"PYTHONPATH": os.pathsep.join(folders)} if tampered else {}
        self._start(name, (*program, "site", str(file)), {**os.environ, **path})

    def add_folder(self, folder: str, like: str, *, site: str, own_key: bool = True) -> Path:
        """One more hospital's folder, for a site of this name; gives the public half of its key."""
        here, there = self.deployment.site(like), self.deployment.site(folder)
        shutil.copytree(here, there, symlinks=True, ignore=shutil.ignore_patterns("state"))
        self.allow(folder, {f'name = "{like}"': f'name = "{site}"'})
        if not own_key:
            return there / "keys" / f"{like}.pub"
        self.allow(folder, {f'key = "keys/{like}"': f'key = "keys/{folder}"'})
        return make_key(there / "keys" / folder)

    def register(self, public_key: Path, name: str = "") -> None:
        """Let a key in by hand, under a name or without one."""
        home = self.folder / "flower"
        ca = self.deployment.coordinator / "certificates" / "ca.crt"
        commands.write_connection(home, f"127.0.0.1:{self.port}", ca)
        words = (*commands.REGISTER, str(public_key), commands.CONNECTION)
        named = ("--name", name) if name else ()
        subprocess.run(
            (*words, *named), env=commands.environment(home), check=True, capture_output=True
        )

    def start_server(self, study: Study, *options: str) -> subprocess.Popen:
        """The coordinator's command under way."""
        file = self.folder / f"{study.name}.toml"
        file.write_text(to_toml(study))
        command = (POLYCLINIC, "server", str(file), "--coordinator", str(self.coordinator))
        runs = ("--runs", str(self.folder / "runs"))
        return self._start("server", (*command, *runs, *options), dict(os.environ))

    def serve(self, study: Study, *options: str, seconds: float = 900) -> str:
        """Run a study to its end; gives what the coordinator said."""
        running = self.start_server(study, *options)
        code = running.wait(seconds)
        text = self.log("server")
        assert code == 0, text
        return text

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def worker(self, name: str) -> int:
        """The process of a site's worker: the one with its file that is not `polyclinic site`."""
        file = str(self.deployment.site(name) / "node.toml")
        for process in processes():
            words = command_of(process)
            if file in words and "site" not in words:
                return process
        raise AssertionError(f"{name} has no worker")

    def events(self, study: Study) -> str:
        """What the study's process has told so far."""
        file = self.hospitals.run_folder(study).parent.parent / "events.jsonl"
        return file.read_text() if file.exists() else ""

    def app(self, study: Study) -> int:
        """The study's own process, which the SuperLink has started."""
        return int(json.loads(self.events(study).splitlines()[0])["begun"])

    def rounds_done(self, study: Study) -> int:
        """The last finished round, from 0; -1 before."""
        lines = [json.loads(line) for line in self.events(study).splitlines()]
        done = (line["event"]["round"] for line in lines if line.get("kind") == "RoundDone")
        return max(done, default=-1)

    def missed(self, study: Study) -> dict[tuple[int, str, str], str]:
        """Why which site was left out, by round and stage."""
        lines = RunFolder(self.hospitals.run_folder(study)).rounds()
        return {(each.round, each.stage, each.site): each.missed for each in lines if each.missed}

    def check_equal(self, study: Study) -> None:
        """The weights of all sites, and the server's, against a run of the local engine."""
        here, there = self.hospitals.run_locally(study), self.hospitals.run_folder(study)
        server = load_tensors(there / "weights" / "server.safetensors")[0]
        assert equal(server, load_tensors(here / "weights" / "server.safetensors")[0])
        for name in self.hospitals.names:
            expected = load_tensors(here / "weights" / f"{name}.safetensors")[0]
            assert equal(self.model(study, name), expected)
            assert not (there / "weights" / f"{name}.safetensors").exists()

    def model(self, study: Study, name: str) -> dict:
        """A site's own final model, which lies at the site."""
        title, seed = study.method[0].title, study.seeds[0]
        folder = run_path(self.state(name) / "runs", study.name, title, seed)
        return load_tensors(folder / "weights" / f"{name}.safetensors")[0]

    def kill(self, name: str, *, alone: bool = False) -> None:
        """End a process and everything it started at once, as if the power failed, or it alone."""
        process = self.running.pop(name)
        for each in (process.pid, *([] if alone else descendants(process.pid))):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        process.wait()

    def end(self, *names: str) -> None:
        """End processes politely, as their services would be stopped."""
        ending = [self.running.pop(name) for name in names]
        for process in ending:
            process.terminate()
        for process in ending:
            process.wait(600)

    def close(self) -> None:
        """End everything; nothing that was started from these folders may go on."""
        self.end(*self.running)
        wait_until(lambda: not self.left_over())

    def left_over(self) -> list[list[str]]:
        """The command lines of processes that name one of these folders."""
        commands_now = [command_of(process) for process in processes()]
        return [words for words in commands_now if str(self.folder) in " ".join(words)]

    def _start(
        self, name: str, command: Sequence[str], environment: dict[str, str]
    ) -> subprocess.Popen:
        one_thread = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        with (self.folder / f"{name}.log").open("ab") as output:
            self.running[name] = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                env={**environment, **one_thread},
                start_new_session=True,
            )
        return self.running[name]


def processes() -> list[int]:
    """The numbers of all processes on this machine."""
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def command_of(process: int) -> list[str]:
    """The words of a process's command line; none where it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace").split("\0")
    return []


def descendants(process: int) -> dict[int, str]:
    """The processes that a process started, and those they started, with their command lines."""
    parents = {}
    for each in processes():
        with suppress(OSError):
            parents[each] = int(_facts(each)[1])
    found = {process}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return {each: " ".join(command_of(each)) for each in found - {process}}


def seconds_worked(process: int) -> float:
    """The processor time that a process has used up to now."""
    return sum(map(int, _facts(process)[11:13])) / os.sysconf("SC_CLK_TCK")


def wait_until(happened: Callable[[], object], seconds: float = 400.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.2)


def _facts(process: int) -> list[str]:
    """What the system says of a process, from its state on; OSError where it has ended."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _edit(file: Path, changes: dict[str, str]) -> None:
    text = file.read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    file.write_text(text)
