"""A whole deployment on the loopback interface, for tests: certificates, SuperLink, requests."""

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.config.coordinator_file import ServerCertificates
from polyclinic.engine.flower import commands
from polyclinic.engine.flower.deploy.folder import Deployment, write_deployment

STUDY = """
name = "trial"
task = { name = "fundus", resolution = 32 }
[network]
name = "unet"
[[method]]
name = "fedavg"
[[method]]
name = "fedbn"
[training]
iterations = 20
[[site]]
name = "north"
[[site]]
name = "St. Mary"
labels = "block"
"""

PROTOBUF = "application/protobuf"


def study_in(folder: Path):
    file = folder / "trial.toml"
    file.write_text(STUDY)
    return load_study(file, [], BUILT_IN)


def deployed(folder: Path, address: str, **settings) -> Deployment:
    """A deployment of two sites, reached at this address."""
    deployment = Deployment(folder / "deployment")
    write_deployment(study_in(folder), address, deployment, **{"days": 90, **settings})
    return deployment


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def process(command, log: Path, env: dict[str, str]) -> Iterator[subprocess.Popen]:
    """A running command with what it starts itself, all of it ended afterwards."""
    with log.open("wb") as output:
        running = subprocess.Popen(
            command, stdout=output, stderr=output, env=env, start_new_session=True
        )
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGTERM)
        try:
            running.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def wait_until(happened, seconds: float = 300.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if happened():
            return True
        time.sleep(0.1)
    return False


def answers(url: str, ca: Path) -> bool:
    try:
        post(url, ca)
    except httpx.TransportError:
        return False
    return True


def post(url: str, ca: Path) -> httpx.Response:
    """The answer to an empty request of the type that Flower's programs send."""
    headers = {"content-type": PROTOBUF, "accept": PROTOBUF}
    context = ssl.create_default_context(cafile=ca)
    return httpx.post(url, headers=headers, verify=context, trust_env=False)


@contextlib.contextmanager
def superlink(deployment: Deployment, folder: Path, port: int) -> Iterator[Path]:
    """A running SuperLink with the deployment's certificates; gives Flower's home."""
    keys = deployment.coordinator / "certificates"
    certificates = ServerCertificates(
        ca=keys / "ca.crt", certificate=keys / "server.crt", key=keys / "server.key"
    )
    home = folder / "flower"
    commands.write_connection(home, f"127.0.0.1:{port}", certificates.ca)
    command = commands.superlink("127.0.0.1", port, folder / "state.db", certificates)
    with process(command, folder / "superlink.log", commands.environment(home)):
        here = f"https://127.0.0.1:{port}/v1/fleet/"
        assert wait_until(lambda: answers(here, certificates.ca)), (
            folder / "superlink.log"
        ).read_text()
        yield home


def register(deployment: Deployment, name: str, home: Path) -> None:
    command = commands.register(deployment.public_key(name), name)
    done = subprocess.run(command, env=commands.environment(home), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
