"""Every fact of the dossier comes from a file: another setting makes another page."""

import json
import re

import pytest

from polyclinic.auditing.membership import audit
from polyclinic.auditing.writing import write_audit
from polyclinic.config.mistakes import ConfigError
from polyclinic.engine.flower.deploy.dossier import write_dossier
from polyclinic.engine.flower.ledger import Ledger, LedgerBroken
from polyclinic.exporting.choosing import origins
from polyclinic.runs import RunError
from tests.engine.flower.deploy.loopback import STUDY
from tests.engine.flower.hospitals import Hospitals
from tests.engine.flower.in_process import InProcessLink
from tests.small_unet import TABLES

PRIVACY = "[privacy]\nclip = 1.0\nnoise = 2.0\n"


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """Two hospitals after a study with noise, whose first has audited its model."""
    hospitals = Hospitals(tmp_path_factory.mktemp("hospitals"), sites=2)
    study = hospitals.study("fedbn", "federation.rounds=1", "evaluation.every=0")
    hospitals.run_with(InProcessLink.of(hospitals.services(PRIVACY)), study)
    write_audit(audit(origins([hospitals.folder / "fjord.toml"], TABLES)))
    return hospitals


@pytest.fixture
def dossier(hospitals, tmp_path):
    """A function that writes fjord's dossier with these lines in its file; gives the Markdown."""

    def write(extra=PRIVACY, change=lambda text: text, **how):
        hospitals.site_file("fjord", extra)
        file = hospitals.folder / "fjord.toml"
        file.write_text(change(file.read_text()))
        page = write_dossier(file, tmp_path / "dossier", TABLES, **how)
        return page.with_suffix(".md").read_text()

    yield write
    hospitals.site_file("fjord", PRIVACY)


def row(text, first):
    """The cells of the row that begins so."""
    (line,) = [each for each in text.splitlines() if each.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_it_tells_the_ledger_and_epsilon_with_its_units(hospitals, dossier):
    text = dossier()
    ledger = Ledger(hospitals.folder / "state" / "fjord" / "ledger.jsonl")
    assert row(text, "head") == [ledger.head()]
    assert row(text, "lines") == [str(len(ledger.lines()))]
    update = ledger.epsilon(1e-5)
    assert f"unit one update of this site: ε = {update:.2f}" in text
    patient = float(re.search(r"counts half: ε = ([\d.]+)", text)[1])
    assert patient > update > 0
    assert "which have no noise: ε = infinite" in text
    assert "; scores; numbers of cases, kind of labels" in row(text, "what leaves")[0]
    assert "running statistics" not in row(text, "what leaves")[0]
    assert row(text, "countersigned by the coordinator") == ["agrees, but nothing is signed"]


def test_it_shows_the_audit_with_its_figure(hospitals, dossier, tmp_path):
    text = dossier()
    (found,) = (hospitals.folder / "state" / "fjord" / "runs").glob("*/*/*/audit.json")
    (loss, *_) = json.loads(found.read_text())["findings"]
    counts = f"{loss['members']} | {loss['others']} | {loss['auc']:.2f}"
    assert f"| fjord | loss | {counts} |" in text
    assert (tmp_path / "dossier" / "audit-1.svg").read_bytes() == found.with_suffix(
        ".svg"
    ).read_bytes()
    page = (tmp_path / "dossier" / "dossier.html").read_text()
    assert 'src="data:image/svg+xml;base64,' in page
    assert 'src="audit' not in page


CHANGES = {
    "disclose": ("disclose = true", "disclose = false", "private weights", "never"),
    "scores": ('scores = "cases"', 'scores = "mean"', "masks", "how well models fit them: means"),
    "studies": (
        'studies = ["*"]',
        "studies = []",
        "another study, or other settings",
        "bound to the hash of an approved study",
    ),
    "address": ("127.0.0.1:1", "fl.example.org:443", "recipients", "fl.example.org:443"),
    "noise": ("noise = 2.0", "noise = 3.5", "privacy.noise", "3.5"),
    "statistics": (
        "noise = 2.0",
        "noise = 2.0\nstatistics = true",
        "running statistics of norm layers",
        "clipped and blurred",
    ),
    "batch": ("cases = 1", "cases = 1\nbatch = 7", "images", "at least 7 images"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_setting_of_the_hospital_makes_another_page(change, dossier):
    old, new, first, told = CHANGES[change]

    def rows(text):
        return [line for line in text.splitlines() if line.startswith(f"| {first} |")]

    before, after = dossier(), dossier(change=lambda text: text.replace(old, new))
    assert told not in " ".join(rows(before)) or told == "never"
    assert told in " ".join(rows(after))
    assert rows(before) != rows(after)


def test_without_noise_it_says_that_nothing_bounds(dossier):
    assert "nothing bounds what shared weights reveal" not in dossier()
    text = dossier("")
    assert "nothing bounds what shared weights reveal" in text
    assert row(text, "whether a patient was trained on")[1] == "no bound: there is no noise"


def test_another_setting_of_the_study_makes_another_page(hospitals, dossier):
    for setting, name, told in (
        ("[federation]\nrounds = 77\n", "rounds", "77 in each run"),
        ("[training]\nbatch = 9\n", "rounds", "with 9 images each"),
        ('[task]\nname = "fundus"\n', "task", "fundus: background, rim, cup"),
        ("[evaluation]\nevery = 1\n", "times that validation cases are scored", "in each run: 20"),
    ):
        other = hospitals.folder / "other.toml"
        task = "" if "[task]" in setting else 'task = "octa"\n'
        other.write_text(f'name = "other"\n{task}method = "fedavg"\n{setting}')
        text = dossier(study=other)
        assert told in row(text, name)[0]
        assert told not in row(dossier(), name)[0]


def test_names_in_a_study_are_shown_and_not_obeyed(hospitals, dossier, tmp_path):
    other = hospitals.folder / "other.toml"
    title = "<script>a()</script> | [x](http://y) `z`"
    other.write_text(
        f'name = "[x](y) `z` _u_"\ntask = "octa"\n'
        f'[[method]]\nname = "fedavg"\ntitle = "{title}"\n[[method]]\nname = "fedbn"\n'
    )
    dossier(study=other)
    page = (tmp_path / "dossier" / "dossier.html").read_text()
    assert "<script" not in page
    assert "<a " not in page
    assert "<h3>[x](y) `z` _u_</h3>" in page
    assert "&lt;script&gt;a()&lt;/script&gt; | [x](http://y) `z`, FedBN" in page


def test_a_broken_ledger_is_not_put_into_a_dossier(hospitals, dossier):
    ledger = hospitals.folder / "state" / "fjord" / "ledger.jsonl"
    kept = ledger.read_text()
    ledger.write_text(kept.replace('"bytes": ', '"bytes": 1', 1))
    with pytest.raises(LedgerBroken, match="was changed"):
        dossier()
    ledger.write_text(kept)


def test_a_hospital_without_runs_names_the_study(tmp_path):
    hospitals = Hospitals(tmp_path, sites=1)
    hospitals.site_file("fjord")
    with pytest.raises(RunError, match="--study"):
        write_dossier(tmp_path / "fjord.toml", tmp_path / "dossier", TABLES)
    hospitals.study()
    how = {"study": tmp_path / "study-0.toml"}
    page = write_dossier(tmp_path / "fjord.toml", tmp_path / "dossier", TABLES, **how)
    text = page.with_suffix(".md").read_text()
    assert "No weights have left this hospital yet: ε is 0." in text
    assert "No study has asked this hospital yet" in text
    assert "No audit lies here" in text


def test_the_coordinator_has_one_with_the_heads_of_all_ledgers(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    file = tmp_path / "coordinator.toml"
    file.write_text('insecure = true\n[keys]\nnorth = "north.pub"\n')
    folder = tmp_path / "runs"
    page = write_dossier(file, tmp_path / "dossier", TABLES, runs=folder)
    assert "none noted yet" in page.read_text()
    name = re.search(r'name = "(\w+)"', STUDY)[1]
    (folder / name).mkdir(parents=True)
    noted = {"lines": 3, "head": "ab" * 32, "at": "2026-11-18", "content": "00" * 32}
    (folder / name / "ledgers.json").write_text(json.dumps({"sites": {"north": noted}}))
    text = write_dossier(file, tmp_path / "dossier", TABLES, runs=folder)
    assert row(text.with_suffix(".md").read_text(), "north") == ["3", "ab" * 32, "2026-11-18"]
    with pytest.raises(ConfigError):
        write_dossier(file, tmp_path / "dossier", TABLES, study=tmp_path / "none.toml")
