import configparser
import json
import stat
import tomllib
from pathlib import Path

import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.config.coordinator_file import load_coordinator_file
from polyclinic.config.node_file import Permissions, PrivacySettings, load_node_file
from polyclinic.engine.flower.deploy.certificates import names_of, read_certificate
from polyclinic.engine.flower.deploy.folder import Deployment, write_deployment
from polyclinic.engine.flower.deploy.keys import fingerprint, is_private, make_key
from polyclinic.methods.centralized import Centralized
from polyclinic.weak import KINDS
from tests.engine.flower.deploy.loopback import deployed, study_in


@pytest.fixture(scope="module")
def deployment(tmp_path_factory) -> Deployment:
    return deployed(tmp_path_factory.mktemp("made"), "fl.example.org:443")


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_site_file_names_every_permission(deployment):
    for name in ("north", "St. Mary"):
        allow = tomllib.loads((deployment.site(name) / "node.toml").read_text())["allow"]
        assert {*allow} == {*Permissions.model_fields}


def test_every_site_file_is_valid_and_points_at_what_lies_beside_it(deployment):
    for name, labels in (("north", None), ("St. Mary", "block")):
        site = load_node_file(deployment.site(name) / "node.toml", KINDS)
        assert (site.name, site.labels) == (name, labels)
        assert site.server.address == "fl.example.org:443"
        assert site.server.ca is not None
        assert site.server.key is not None
        assert site.server.ca.read_bytes() == deployment.authority.certificate.read_bytes()
        assert fingerprint(site.server.key) == fingerprint(deployment.public_key(name))
        assert site.allow.methods == ("fedavg", "fedbn")
        assert site.privacy is None


def test_every_bound_of_a_site_file_has_a_line_of_its_own(deployment):
    text = (deployment.site("north") / "node.toml").read_text()
    assert "weights" in tomllib.loads(text)["allow"]
    assert not [line for line in text.splitlines() if line.count(" = ") > 1 and "#" not in line[:2]]


def test_the_commented_settings_of_a_site_file_are_valid_too(deployment, tmp_path):
    text = (deployment.site("north") / "node.toml").read_text()
    lines = [
        line.removeprefix("# ") if " = " in line or "[p" in line else line
        for line in text.splitlines()
    ]
    (tmp_path / "node.toml").write_text("\n".join(lines))
    assert load_node_file(tmp_path / "node.toml").privacy == PrivacySettings()


def test_the_coordinators_file_names_its_certificates_and_every_sites_key(deployment):
    read = load_coordinator_file(deployment.coordinator / "coordinator.toml")
    assert read.host == "127.0.0.1"
    assert read.certificates is not None
    assert read.certificates.key.exists()
    assert names_of(read_certificate(read.certificates.certificate))[0] == "fl.example.org"
    assert list(read.keys) == ["north", "St. Mary"]
    assert all(path.exists() for path in read.keys.values())


def test_the_study_travels_with_the_coordinator_unchanged(deployment, tmp_path):
    study = study_in(tmp_path)
    assert load_study(deployment.coordinator / "study.toml", [], BUILT_IN) == study


def test_no_private_key_can_be_read_by_others_or_lies_where_it_does_not_belong(deployment):
    private = {
        name for name, content in contents(deployment.folder).items() if b"PRIVATE KEY" in content
    }
    assert private == {
        "authority/ca.key",
        "coordinator/certificates/server.key",
        "sites/north/keys/north",
        "sites/st-mary/keys/st-mary",
    }
    assert all(is_private(deployment.folder / name) for name in private)


def test_what_a_site_gets_tells_it_nothing_of_the_others(deployment):
    for content in contents(deployment.site("north")).values():
        assert b"Mary" not in content
        assert b"mary" not in content


def test_what_is_published_tells_the_task_and_no_site(deployment):
    file = deployment.coordinator / "published" / "study.json"
    told = json.loads(file.read_text())
    assert (told["task"], told["classes"]) == ("fundus", ["background", "rim", "cup"])
    assert (told["methods"], told["budgets"]) == (["fedavg", "fedbn"], {"training.iterations": 20})
    prints = [fingerprint(deployment.public_key(name)) for name in ("north", "St. Mary")]
    assert told["keys"] == sorted(prints)
    assert "north" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def unit(file: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(file.read_text())
    return parser


def test_units_restart_what_they_run(deployment):
    site = unit(deployment.site("north") / "polyclinic-site.service")["Service"]
    assert (site["Restart"], site["RestartSec"]) == ("always", "60")
    assert site["ExecStart"].endswith("polyclinic site node.toml")
    server = unit(deployment.coordinator / "polyclinic-server.service")["Service"]
    assert (server["Restart"], server["RestartSec"]) == ("on-failure", "60")
    assert server["WorkingDirectory"] == str(deployment.coordinator.resolve())
    program, *words = server["ExecStart"].split()
    assert Path(program.strip('"')).exists()
    assert words == ["server", "study.toml", "--coordinator", "coordinator.toml", "--resume"]


def test_percent_signs_are_not_read_as_systemds_own(tmp_path):
    study = study_in(tmp_path)
    study = study.model_copy(update={"name": "50% more"})
    made = Deployment(tmp_path / "at 100%")
    write_deployment(study, "fl.example.org:443", made, days=9)
    text = (made.coordinator / "polyclinic-server.service").read_text()
    assert "50%% more" in text
    assert "at 100%%/coordinator" in text


def test_the_runbook_fits_a_page_and_has_everybodys_fingerprint(deployment):
    page = (deployment.folder / "README.md").read_text()
    assert len(page.splitlines()) < 66
    for name in ("north", "St. Mary"):
        assert f"| {name} | `{fingerprint(deployment.public_key(name))}` | made here" in page
        own = (deployment.site(name) / "README.md").read_text()
        assert len(own.splitlines()) < 66
        assert fingerprint(deployment.public_key(name)) in own


def test_doing_it_again_keeps_keys_and_authority_and_renews_the_certificate(tmp_path):
    made = deployed(tmp_path, "fl.example.org:443")
    before = contents(made.folder)
    deployed(tmp_path, "fl.example.org:443", days=200)
    after = contents(made.folder)
    changed = {name for name in after if before.get(name) != after[name]}
    assert changed == {
        "README.md",
        "coordinator/certificates/server.crt",
        "coordinator/certificates/server.key",
    }
    ends = read_certificate(made.coordinator / "certificates" / "server.crt").not_valid_after_utc
    first = load_pem(before["coordinator/certificates/server.crt"]).not_valid_after_utc
    assert (ends - first).days == 110


def load_pem(content: bytes):
    from cryptography.x509 import load_pem_x509_certificate

    return load_pem_x509_certificate(content)


def test_a_key_made_at_the_hospital_is_taken_and_no_private_one_is_made(tmp_path):
    public = make_key(tmp_path / "hospital" / "north")
    made = deployed(tmp_path, "fl.example.org:443", public_keys=public.parent)
    assert fingerprint(made.public_key("north")) == fingerprint(public)
    assert not (made.site("north") / "keys").exists()
    assert (made.site("St. Mary") / "keys" / "st-mary").exists()
    assert "made at the hospital" in (made.folder / "README.md").read_text()
    again = deployed(tmp_path, "fl.example.org:443")
    assert fingerprint(again.public_key("north")) == fingerprint(public)
    assert not (again.site("north") / "keys").exists()


def test_a_key_sent_later_replaces_the_one_that_was_made_here(tmp_path):
    made = deployed(tmp_path, "fl.example.org:443")
    public = make_key(tmp_path / "hospital" / "north")
    deployed(tmp_path, "fl.example.org:443", public_keys=public.parent)
    assert fingerprint(made.public_key("north")) == fingerprint(public)
    assert not (made.site("north") / "keys").exists()


def test_a_sent_file_that_is_no_key_is_refused(tmp_path):
    (tmp_path / "north.pub").write_text("hello")
    with pytest.raises(ValueError, match=r"north\.pub is no public key"):
        deployed(tmp_path, "fl.example.org:443", public_keys=tmp_path)


def test_an_address_without_a_port_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="a host and a port"):
        deployed(tmp_path, "fl.example.org")
    assert not (tmp_path / "deployment").exists()


def test_a_method_that_needs_all_images_in_one_place_is_refused(tmp_path):
    study = study_in(tmp_path)
    pooled = tuple(each.model_copy(update={"built": Centralized()}) for each in study.method)
    with pytest.raises(ValueError, match="no engine across hospitals can do"):
        write_deployment(
            study.model_copy(update={"method": pooled}),
            "fl.example.org:443",
            Deployment(tmp_path / "made"),
            days=9,
        )


def test_an_authority_whose_key_is_off_line_is_never_replaced(tmp_path):
    made = deployed(tmp_path, "fl.example.org:443")
    made.authority.key.unlink()
    before = contents(made.folder)
    deployed(tmp_path, "fl.example.org:443", days=200)
    assert contents(made.folder) == before
    with pytest.raises(ValueError, match=r"certificate for other\.example\.org needs .*ca\.key"):
        deployed(tmp_path, "other.example.org:443")


def test_sites_whose_names_would_share_a_folder_are_refused(tmp_path):
    study = study_in(tmp_path)
    twins = tuple(
        site.model_copy(update={"name": name})
        for site, name in zip(study.site, ("a b", "A-b"), strict=True)
    )
    with pytest.raises(ValueError, match="sites a b, A-b would share a folder"):
        write_deployment(
            study.model_copy(update={"site": twins}),
            "fl.example.org:443",
            Deployment(tmp_path / "made"),
            days=9,
        )


def test_the_proxy_config_opens_nothing_but_the_fleet_and_the_study(deployment):
    text = (deployment.coordinator / "nginx.conf").read_text()
    places = [line.split() for line in text.splitlines() if line.strip().startswith("location")]
    assert [place[1:-1] for place in places] == [
        ["/v1/fleet/"],
        ["=", "/polyclinic/study.json"],
        ["/"],
    ]
    assert tomllib.loads((deployment.coordinator / "coordinator.toml").read_text())["port"] == 8000
    assert "server 127.0.0.1:8000;" in text
