import csv
import io
import re
import shutil
import subprocess

import numpy as np
import pytest
from rich.console import Console

from polyclinic.evaluation.statistics import OVERALL
from polyclinic.report import write_report
from polyclinic.report.ablations import ablations
from polyclinic.report.efficiency import efficiency
from polyclinic.report.exports import to_csv, to_latex, to_markdown, to_terminal
from polyclinic.report.reading import read_runs
from polyclinic.report.score_tables import comparison_table
from polyclinic.report.sheets import sheet_of
from polyclinic.runs import (
    ENSEMBLE,
    Embedded,
    GuestScore,
    RoundLine,
    write_embeddings,
    write_guests,
)
from tests.report.invented import write_run


@pytest.fixture(scope="module")
def table(study):
    return comparison_table(read_runs([study]), "dice")


def test_the_csv_holds_every_number_in_full(table):
    head, *rows = csv.reader(io.StringIO(to_csv(sheet_of(table))))
    assert head[:3] == ["method", "disc / alpha mean", "disc / alpha std"]
    assert head[-6:-4] == ["all regions / Images mean", "all regions / Images std"]
    assert head[-4:] == ["model", "weighting", "seeds", "settings"]
    assert [row[0] for row in rows] == ["FedAvg", "FedRep"]
    for row, expected in zip(rows, table.rows, strict=True):
        means = [float(value) for value in row[1:-4:2]]
        assert row[-4] == "shared"
        assert means == [cell.value for cell in expected.cells]
    average = head.index("disc / Avg std")
    assert rows[0][average] == ""


def test_the_latex_has_as_many_cells_in_every_row(table):
    text = to_latex(sheet_of(table))
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(body) == 4
    columns = len(table.columns) + 1
    assert all(line.count("&") == columns - 1 for line in body[1:])
    spans = [int(span) for span in re.findall(r"\\multicolumn\{(\d+)\}", body[0])]
    assert sum(spans) == columns - 1
    preamble = re.search(r"\\begin\{tabular\}\{(.*)\}", text).group(1)
    assert len(preamble.replace(" ", "")) == columns
    assert r"\cmidrule(lr){2-8} \cmidrule(lr){9-15} \cmidrule(lr){16-18}" in text


def test_the_latex_marks_the_best_and_the_second(table):
    cells = [row.cells[0] for row in table.rows]
    best, second = sorted(cells, key=lambda cell: -cell.value)
    text = to_latex(sheet_of(table))
    spread = rf"{{\scriptsize$\pm${100 * best.spread:.2f}}}"
    assert rf"\textbf{{{100 * best.value:.2f}}}{spread}" in text
    assert rf"\underline{{{100 * second.value:.2f}}}" in text


def test_braces_of_the_latex_are_balanced_and_names_escaped(tmp_path):
    write_run(tmp_path, "A_1 & 50% {x} ~^$#\\", study="s", sites=("site_1", "a&b"))
    write_run(tmp_path, "B", study="s", sites=("site_1", "a&b"))
    text = to_latex(sheet_of(comparison_table(read_runs([tmp_path / "s"]), "dice")))
    assert r"A\_1 \& 50\% \{x\} \textasciitilde{}\textasciicircum{}\$\#\textbackslash{}" in text
    assert r"site\_1 & a\&b" in text
    plain = text.replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")


def test_an_unfinished_method_gets_dashes(tmp_path):
    write_run(tmp_path, "A")
    write_run(tmp_path, "B", stop=1, started="2027")
    table = comparison_table(read_runs([tmp_path / "demo"]), "dice")
    assert to_latex(sheet_of(table)).splitlines()[-3].startswith("B & -- & --")
    line = to_csv(sheet_of(table)).splitlines()[2]
    assert line.startswith("B" + "," * 2 * len(table.columns) + ",shared,")


def test_a_table_of_one_region_has_no_row_of_regions(tmp_path):
    write_run(tmp_path, "A", regions=("faz",))
    text = to_latex(sheet_of(comparison_table(read_runs([tmp_path / "demo"]), "hd95")))
    assert "multicolumn" not in text
    assert "cmidrule" not in text


def test_the_terminal_shows_the_names_as_they_are(tmp_path):
    write_run(tmp_path, "A", sites=("[red]x[/red]",))
    write_run(tmp_path, "[bold]B", sites=("[red]x[/red]",), stop=1, started="2027")
    table = comparison_table(read_runs([tmp_path / "demo"]), "dice")
    console = Console(width=160, file=io.StringIO())
    console.print(to_terminal(table))
    text = console.file.getvalue()
    assert "[red]x[/red]" in text
    assert "[bold]B (unfinished)" in text
    assert "Dice (%) ↑" in text


def test_the_markdown_has_a_line_for_each_method_and_the_same_numbers(table):
    head, rule, *rows = to_markdown(sheet_of(table)).splitlines()
    assert head.startswith("| Method | disc / alpha | disc / beta |")
    assert rule.count("|") == head.count("|") == len(table.columns) + 2
    for line, row in zip(rows, table.rows, strict=False):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[0] == row.title
        for text, cell in zip(cells[1:], row.cells, strict=True):
            assert f"{100 * cell.value:.2f}" in text
            assert ("**" in text) == (cell.mark == "best")
            assert ("≈" in text) == cell.near
    assert "± standard deviation over cases" in to_markdown(sheet_of(table))


def test_words_of_markdown_cannot_break_the_table(tmp_path):
    write_run(tmp_path, "a|b*c_d`e", sites=("x",), metrics=("dice",))
    text = to_markdown(sheet_of(comparison_table(read_runs([tmp_path / "demo"]), "dice")))
    assert r"| a\|b\*c\_d\`e |" in text


def with_settings(run, entry):
    """Give a run's method these settings, as a resolved study has them."""
    path = run.path / "study.toml"
    path.write_text(path.read_text().replace('name = "invented"', f'name = "invented"\n{entry}'))


@pytest.fixture
def switched(tmp_path):
    """A method with two switches and a number, in four rows, and one of another method."""
    switches = {
        "Neither": "classes = 0\nshared = false\nrate = 0.1",
        "Classes": "classes = 12\nshared = false\nrate = 0.1",
        "Shared": "classes = 0\nshared = true\nrate = 0.2",
        "Both": "classes = 12\nshared = true\nrate = 0.25",
    }
    for number, (title, entry) in enumerate(switches.items()):
        with_settings(write_run(tmp_path, title, started=f"2026-0{number + 1}"), entry)
    other = write_run(tmp_path, "Other", started="2026-09")
    path = other.path / "study.toml"
    path.write_text(path.read_text().replace('"invented"', '"another"'))
    return read_runs([tmp_path / "demo"])


def test_an_ablation_table_ticks_what_is_switched_on(switched):
    (sheet,) = ablations(switched)
    assert sheet.heads[:4] == ("Method", "classes", "shared", "rate")
    assert sheet.heads[4:6] == ("Dice (%) ↑", "IoU (%) ↑")
    assert [[entry.text for entry in row[:4]] for row in sheet.rows] == [
        ["Neither", "–", "–", "0.1"],
        ["Classes", "✓", "–", "0.1"],
        ["Shared", "–", "✓", "0.2"],
        ["Both", "✓", "✓", "0.25"],
    ]
    table = comparison_table(switched, "dice", [OVERALL])
    place = [column.kind for column in table.columns].index("average")
    averages = {row.title: row.cells[place].value for row in table.rows}
    assert [row[4].number for row in sheet.rows] == [averages[row[0].text] for row in sheet.rows]
    # The best of these rows is marked, whoever leads outside them.
    assert [row[4].mark for row in sheet.rows].count("best") == 1


def test_rows_of_one_method_that_differ_in_nothing_give_no_table(study):
    assert ablations(read_runs([study])) == []


def test_the_table_of_efficiency_has_bytes_seconds_and_parameters(tmp_path):
    run = write_run(tmp_path, "FedAvg", rounds=3)
    end = run.end().model_copy(update={"predicting": {"alpha": 0.02, "beta": 0.03}})
    (run.path / "finished.json").write_text(end.model_dump_json())
    run.append([RoundLine(round=4, stage="later", site="alpha", up=1000, down=500, seconds=2.5)])
    write_run(tmp_path, "Local", rounds=3, started="2027")
    sheet = efficiency(read_runs([tmp_path / "demo"]))
    first, second = ({h: e.text for h, e in zip(sheet.heads, r, strict=True)} for r in sheet.rows)
    assert first["Parameters (M)"] == "1.814"
    assert first["Up per site and round"] == "7.26 MB"
    assert first["Traffic of a run"] == "174 MB"  # 7.255056 MB × 4 sites × 3 rounds × 2 ways
    assert (first["After the rounds"], first["Seconds after"]) == ("1.50 kB", "2.50 s")
    assert (first["ms an image"], first["Images per second"]) == ("25.00", "40")
    assert (second["Up per site and round"], second["ms an image"]) == ("0 B", "–")


AWKWARD = ("A_1 & 50% {x} ~^$#\\ ±≈²", "site_1", "a&b")


@pytest.fixture
def everything(tmp_path):
    """The folder of a report that has every kind of table but an ablation, with awkward names."""
    title, *sites = AWKWARD
    for name, started in ((title, "2026"), ("B", "2027")):
        run = write_run(tmp_path / "odd", name, sites=tuple(sites), started=started, cases=8)
        rng = np.random.default_rng(0)
        for site in sites:
            tables = [
                Embedded(moment, np.arange(30) % 3, rng.normal(size=(30, 4)))
                for moment in ("before", "after")
            ]
            write_embeddings(run.embeddings_path(site), tables)
        for unseen in ("", "c%d"):
            rows = [
                GuestScore(model, site, case, "disc", "dice", float(rng.random()))
                for model in (*sites, ENSEMBLE)
                for site in ([unseen] if unseen else sites)
                for case in ("1", "2")
            ]
            write_guests(run, rows, unseen=unseen)
    return write_report([tmp_path / "odd" / "demo"], tmp_path / "report").parent


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("pdflatex") is None,
    reason="there is no LaTeX (apt-get install texlive-latex-recommended)",
)
def test_every_table_compiles_in_a_paper(switched, everything, tmp_path):
    tables = [sheet_of(comparison_table(switched, metric)) for metric in switched.metrics]
    tables += [*ablations(switched), efficiency(switched)]
    written = {path.stem: path.read_text("utf-8") for path in everything.glob("table-*.tex")}
    kinds = {"dice", "efficiency", "separation", "ranking-dice", "ranking-dice-by-region"}
    assert {f"table-{kind}" for kind in (*kinds, "unseen-dice", "cross-site-dice")} <= set(written)
    every = [*map(to_latex, tables), *written.values()]
    body = "\n\n".join(f"\\resizebox{{\\textwidth}}{{!}}{{%\n{each}}}" for each in every)
    packages = r"\usepackage{booktabs,amssymb,graphicx}"
    text = rf"\documentclass{{article}}{packages}\begin{{document}}{body}\end{{document}}"
    (tmp_path / "paper.tex").write_text(text)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000
    assert "Missing character" not in done.stdout + (tmp_path / "paper.log").read_text("latin-1")
