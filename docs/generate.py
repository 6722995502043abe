"""A hook of mkdocs: reference pages made from the code, and navigation made from folders."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import torch
import typer
from licences import licences
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from settings_tables import code, section, settings, summary, table

from polyclinic.catalog import BUILT_IN
from polyclinic.cli import app
from polyclinic.config.callables import GIVEN
from polyclinic.config.coordinator_file import CoordinatorFile
from polyclinic.config.node_file import NodeFile
from polyclinic.config.study import Study
from polyclinic.federation.method import Method, Stage
from polyclinic.methods.costs import cost_lines, measured_costs
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, parameters
from polyclinic.runs import SiteInfo

DOCS = Path(__file__).parent
COSTS_EXPLAINED = (
    "Costs were measured in the third of three rounds, on three small synthetic sites with one",
    "pass over the images a round and networks of default size. They are multiples of FedAvg's on",
    "the same network: bytes down and up, optimizer steps and images trained on, summed over",
    "sites; and what is kept, in sizes of the model. A second model that learns or teaches within",
    "the same step does not show. What grows with the number of sites or rounds is given for",
    "three. Finishing steps were measured behind FedBN. `make method-costs` measures all anew.\n",
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every page of a folder where the navigation names the folder."""
    config.nav = [_expanded(entry) for entry in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for name, text in pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def pages() -> dict[str, str]:
    """The generated pages by name."""
    makers = (configuration, commands, methods, choices, licences)
    return {make.__name__: "\n".join(make()) for make in makers}


def configuration() -> Iterator[str]:
    """Every key of a study, a node.toml and a coordinator.toml."""
    yield "# Configuration\n"
    yield "`polyclinic config STUDY` prints a study with every default filled in. A key that does"
    yield "not exist, or that would have no effect, is an error. Beside the `name` of a method,"
    yield "network or finishing step stand its own settings ([methods](methods.md),"
    yield "[networks](choices.md)). A task is the name of one, with changes beside it, a whole"
    yield "table, or `file`, the path of a file with the same keys; its `resolution` and `tile` are"
    yield "multiples of what the network needs. A task, network, method, finishing step, metric or"
    yield "loss may also be one"
    yield "that an installed package offers or, on one machine, code in a file beside the study:"
    yield '`name = "mine.py:FedMine"`'
    yield "([Your own method](../tutorials/own-method.md)). `base` names a file whose settings"
    yield "hold where this one says nothing"
    yield "([runs](../runs.md#a-study-that-differs-a-little-from-another))."
    for title, model in (
        ("A study", Study),
        ("A site's node.toml", NodeFile),
        ("The coordinator's coordinator.toml", CoordinatorFile),
    ):
        yield f"\n## {title}\n\n{summary(model)}\n"
        yield from section(model)


def commands() -> Iterator[str]:
    """Every command with its arguments and options."""
    yield "# Command line\n"
    yield from _command(typer.main.get_command(app), ["polyclinic"])


def methods() -> Iterator[str]:
    """Every method and finishing step: what it is, what it shares, what can be set."""
    yield "# Methods and their settings\n"
    yield from COSTS_EXPLAINED
    yield "Each method is one frozen dataclass; its fields are its settings. What is shared is read"
    yield "from the method itself, with its default settings, one-channel images, two classes, four"
    yield "sites and the network named. Parameters are counted; running statistics are not.\n"
    for name, method in BUILT_IN.method.items():
        yield from _about(name, method)
        yield from _sharing(method)
        yield from settings(method)
    yield '\n## Finishing steps\n\n`then = ["NAME"]` adds one after the last round of any method.'
    for name, finish in BUILT_IN.finish.items():
        yield from _about(name, finish, level=3)
        yield from settings(finish)


def choices() -> Iterator[str]:
    """Networks with their settings, tasks, kinds of weak label, metrics and losses."""
    yield "# Networks, tasks, kinds, metrics and losses\n\n## Networks"
    for name, network in BUILT_IN.network.items():
        with torch.device("meta"):
            size = sum(each.numel() for each in network(channels=1, classes=2).parameters())
        yield f"\n### {name}\n\n{summary(network)}\n"
        yield f"{size:,} parameters with one channel and two classes. Sides of images must be"
        yield f"multiples of {getattr(network, 'divisor', 1)}.\n"
        yield from settings(network, GIVEN["network"])
    yield "\n## Tasks\n"
    rows = [
        (name, task.summary, ", ".join(task.classes), ", ".join(task.regions), str(task.channels),
         str(task.resolution))
        for name, task in BUILT_IN.task.items()
    ]  # fmt: skip
    yield from table("task|what|classes, from 0|scored regions|channels|resolution", rows)
    yield "\n## Kinds of weak label\n"
    kinds = BUILT_IN.kind.items()
    rows = [(name, kind.summary, kind.cost, kind.sparsity) for name, kind in kinds]
    yield from table("kind|what is labelled|work for one object|sparsity", rows)
    yield "\n## Metrics\n"
    rows = [(name, each.summary, each.better, each.unit) for name, each in BUILT_IN.metric.items()]
    yield from table("metric|what|better|unit", rows)
    yield "\n## Losses\n"
    rows = [(name, loss.summary) for name, loss in BUILT_IN.loss.items()]
    yield from table("loss|what", rows)


def _expanded(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {title: _expanded(inner) for title, inner in entry.items()}
    if isinstance(entry, list):
        return [_expanded(inner) for inner in entry]
    if isinstance(entry, str) and entry.endswith("/"):
        pages = sorted((DOCS / entry).glob("*.md"), key=lambda page: (page.stem != "index", page))
        return [page.relative_to(DOCS).as_posix() for page in pages]
    return entry


def _about(name: str, thing: type, *, level: int = 2) -> Iterator[str]:
    title = getattr(thing, "title", "") or thing.__name__
    module = inspect.getmodule(thing)
    yield f"\n{'#' * level} {title}\n\n`{name}`. {summary(thing)}\n"
    yield f"*{summary(module)}*\n"
    file = f"methods/{module.__name__.rpartition('.')[2]}.py" if module else ""
    for page in sorted((DOCS / "methods").glob("*.md")):
        if f"`{file}`" in page.read_text():
            heading = page.read_text().partition("\n")[0].lstrip("# ")
            yield f"Sources, choices and tests: [{heading}](../methods/{page.name}).\n"
    yield from (f"- {line[0].upper()}{line[1:]}." for line in cost_lines(measured_costs()[name]))


def _sharing(kind: type[Method]) -> Iterator[str]:
    """What of the network is shared, and the stages."""
    method = kind()
    name, net = _network(method)
    names = parameters(net)
    sizes = {each: tensor.numel() for each, tensor in net.named_parameters()}

    def count(chosen: Names) -> int:
        return sum(sizes[each] for each in chosen & names)

    shared = method.shares(net)
    yield f"- With `{name}`, {count(shared):,} of {count(names):,} parameters are shared."
    private = {part: inner - shared for part, inner in net.parts().items() if inner - shared}
    if private:
        told = (_counted(p, count(own), count(net.parts()[p])) for p, own in private.items())
        yield f"- Private, by part: {', '.join(told)}."
    if kept := count(method.keeps(net) & shared):
        yield f"- Shared, and also kept at the site for its next visit: {kept:,} parameters."
    if made := method.server_made(net):
        yield f"- Made by the server for each site: {count(made):,} parameters."
    if method.paper_weighting not in ("", "samples"):
        yield f'- Its authors weight sites by `{method.paper_weighting}` (`weighting = "paper"`).'
    stages = {"before the rounds": method.before(), "each round": method.each_round(),
              "after the last": (method.finalizing(), *method.after())}  # fmt: skip
    told = (f"{when} {', '.join(map(_stage, each))}" for when, each in stages.items() if each)
    yield f"- Stages: {'; '.join(told)}.\n"


def _counted(part: str, private: int, whole: int) -> str:
    return f"`{part}` ({f'{private:,} of {whole:,}' if private else 'buffers only'})"


def _stage(stage: Stage) -> str:
    notes = [word for word, so in (("ring", stage.ring), ("discloses", stage.discloses)) if so]
    return f"`{stage.name}`" + (f" ({', '.join(notes)})" if notes else "")


def _network(method: Method) -> tuple[str, Segmenter]:
    """The first network that the method works with, as the method makes it."""
    sites = tuple(SiteInfo(f"site-{index}", index, "mask", 10) for index in range(4))
    for name in ("unet", "pvt_fpn"):
        try:
            net = method.adapt(BUILT_IN.network[name](channels=1, classes=2), sites)
            method.shares(net)
        except ValueError:
            continue
        return name, net
    raise ValueError(f"{method} works with none of the networks")


def _command(command: click.Command, path: list[str]) -> Iterator[str]:
    """A heading, the help, a table of what can be given; then the commands below it."""
    rows: list[Sequence[str]] = []
    for parameter in command.params:
        names = ", ".join(f"`{each}`" for each in (*parameter.opts, *parameter.secondary_opts))
        if isinstance(parameter, click.Argument):
            names = f"`{parameter.human_readable_name.upper()}`"
        default = "required" if parameter.required else code(parameter.default)
        rows.append((names, default, getattr(parameter, "help", None) or ""))
    below = getattr(command, "commands", {})
    if len(path) > 1:
        yield f"\n{'#' * len(path)} {' '.join(path)}\n"
    yield f"{inspect.cleandoc(command.help or '')}\n"
    if rows and not below:
        yield from table("argument|default|meaning", rows)
    for name, inner in below.items():
        yield from _command(inner, [*path, name])
