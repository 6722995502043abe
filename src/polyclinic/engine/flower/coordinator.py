"""The coordinator's side: a SuperLink, started or joined, and a study that runs on it."""

import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polyclinic.config import EngineSettings, Study, to_toml
from polyclinic.config.coordinator_file import CoordinatorFile
from polyclinic.engine.flower import commands
from polyclinic.engine.flower.engine import events_file, refuse_impossible, site_names
from polyclinic.engine.flower.event_log import EventLog, events_in
from polyclinic.engine.flower.guard import write_bundle
from polyclinic.engine.flower.processes import SupervisedProcess, listens
from polyclinic.engine.run import Run, runs_of
from polyclinic.engine.study import Watch, refuse_mistaken_runs
from polyclinic.runs import RunError, slug, write_atomic
from polyclinic.runs.lock import alive, locked

PAUSE = 0.3  # seconds between two looks at the events
START_UP = 180.0  # seconds that a SuperLink or an app may take to begin
ATTEMPTS = 10  # times that an app which dies without a word is started again


def across_hospitals(study: Study) -> Study:
    """The study with Flower as its engine; what it says of the local one is left out."""
    if study.engine.name == "flower":
        return study
    return study.model_copy(update={"engine": EngineSettings(name="flower")})


class Coordinator:
    """Runs studies on a SuperLink, which lives no longer than this unless it was there before."""

    def __init__(
        self,
        file: CoordinatorFile,
        say: Callable[[str], None],
        going_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self.file = file
        self.say = say
        self.going_on = going_on
        self.home = file.state / "flower"
        self.environment = commands.environment(self.home)
        self.superlink: SupervisedProcess | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Start a SuperLink, or join the one that listens already, and let the sites' keys in."""
        if self.file.insecure:
            self.say("warning: insecure = true: nothing is encrypted, anybody may take part")
        certificates = self.file.certificates
        address = f"{self.file.host}:{self.file.port}"
        commands.write_connection(self.home, address, certificates.ca if certificates else None)
        try:
            self._connect()
            self._register()
            yield
        finally:
            if self.superlink:
                self.superlink.stop()

    def run(
        self, study: Study, root: Path, *, resume: bool, fresh: bool, watch: Watch
    ) -> list[Run]:
        """Do the study and tell `watch` every event; an app that dies is started again.

        A second coordinator of the same study is refused while this one goes on.
        """
        root = root.resolve()
        with locked(events_file(root, study).with_name("coordinator.lock")):
            return self._run(study, root, resume=resume, fresh=fresh, watch=watch)

    def _run(
        self, study: Study, root: Path, *, resume: bool, fresh: bool, watch: Watch
    ) -> list[Run]:
        refuse_impossible(study)
        runs = runs_of(study, root)
        if not fresh:
            refuse_mistaken_runs(runs, resume=resume)
        self._refuse_unknown_keys(study)
        file = self.file.state / "studies" / f"{slug(study.name)}.toml"
        write_atomic(file, to_toml(study))
        bundle = write_bundle(self.file.state / "bundle")
        certificates = self.file.certificates
        for attempt in range(ATTEMPTS):
            again = attempt > 0
            name = secrets.token_hex(4)
            settings: dict[str, str | int | bool] = {
                "study": str(file),
                "runs": str(root),
                "attempt": name,
                "coordinator": os.getpid(),
                "resume": resume or again,
                "fresh": fresh and not again,
                "insecure": self.file.insecure,
                "certificate": str(certificates.certificate) if certificates else "",
                "key": str(certificates.key) if certificates else "",
            }
            self._await_superlink()
            self._flower(commands.run(bundle, settings))
            if self._follow(EventLog(events_file(root, study)), name, runs, watch):
                return runs
            self.say("the study's process died; it goes on from its last finished round")
        raise RunError(f"the study's process died {ATTEMPTS} times; see the log of the SuperLink")

    def _connect(self) -> None:
        host, port = self.file.host, self.file.port
        if listens(host, port):
            self.say(f"joining the SuperLink on {host}:{port}")
            return
        self.file.state.mkdir(parents=True, exist_ok=True)
        database = self.file.state / "superlink.db"
        command = commands.superlink(host, port, database, self.file.certificates)
        log = self.file.state / "superlink.log"
        self.superlink = SupervisedProcess(
            "the SuperLink", command, self.environment, self.say, log
        )
        self._await_superlink()

    def _await_superlink(self) -> None:
        """Wait for a SuperLink that is just starting, or starting again."""
        host, port = self.file.host, self.file.port
        end = time.monotonic() + START_UP
        while not listens(host, port):
            if time.monotonic() > end:
                log = f"; see {self.superlink.log}" if self.superlink else ""
                raise RunError(f"no SuperLink answers on {host}:{port}{log}")
            if self.superlink:
                self.superlink.look()
            time.sleep(PAUSE)

    def _register(self) -> None:
        """Let in the keys that the SuperLink does not know yet.

        Flower's list of machines has no names, so those let in before are noted in a file.
        """
        keys = {name: key.read_text().strip() for name, key in self.file.keys.items()}
        note = self.file.state / "registered.json"
        known = json.loads(note.read_text()) if note.exists() else {}
        if known and len(self._flower(commands.sites())["nodes"]) < len(known):
            known = {}  # another SuperLink, or an emptied one
        for name in [name for name in keys if known.get(name) != keys[name]]:
            self._flower(commands.register(self.file.keys[name], name), fine="already in use")
        write_atomic(note, json.dumps(keys, indent=2))

    def _refuse_unknown_keys(self, study: Study) -> None:
        missing = [name for name in site_names(study) if name not in self.file.keys]
        if missing and not self.file.insecure:
            raise RunError(
                f"the coordinator has no key of {', '.join(missing)}; "
                "add them to [keys] of the coordinator.toml"
            )

    def _flower(self, command: Sequence[str], fine: str = "") -> dict[str, Any]:
        """What a command of Flower's answers; RunError where it fails, unless that is `fine`."""
        try:
            done = subprocess.run(  # noqa: S603 (our own command lines)
                command, env=self.environment, capture_output=True, text=True, timeout=START_UP
            )
        except subprocess.TimeoutExpired:
            name = " ".join(command[:3])
            raise RunError(f"{name} did not answer within {START_UP:g} seconds") from None
        start = done.stdout.find("{")
        try:
            answer = json.loads(done.stdout[start:]) if start >= 0 else {}
        except ValueError:
            answer = {}
        if done.returncode or answer.get("success") is False:
            reason = str(answer.get("error-message") or done.stderr.strip() or done.stdout.strip())
            if fine and fine in reason:
                return answer
            raise RunError(f"{' '.join(command[:3])} failed: {reason}")
        return answer

    def _pass_on(self, lines: Sequence[dict[str, Any]], runs: Sequence[Run], watch: Watch) -> None:
        for told in (line["told"] for line in lines if "told" in line):
            self.say(str(told))
        for run, event in events_in(lines, runs):
            watch(run, event)

    def _follow(self, log: EventLog, attempt: str, runs: Sequence[Run], watch: Watch) -> bool:
        """Watch an attempt to its end; False where its process died without a word."""
        host = None
        end = time.monotonic() + START_UP
        while self.going_on():
            if self.superlink:
                self.superlink.look()
            dead = host is not None and not alive(host)
            lines = log.news()
            if lines and "begun" in lines[0] and lines[0]["as"] == attempt:
                host = int(lines[0]["begun"])
            if host is None:
                log.read = 0  # what stands there is of an earlier attempt
                if time.monotonic() > end:
                    return False
            else:
                self._pass_on(lines, runs, watch)
                if lines and "error" in lines[-1]:
                    raise RunError(str(lines[-1]["error"]))
                if lines and "finished" in lines[-1]:
                    return True
                if dead and not lines:
                    return False
            time.sleep(PAUSE)
        raise KeyboardInterrupt
