import csv
import io
import re

import pytest
from rich.console import Console

from polyclinic.report.exports import to_csv, to_latex, to_terminal
from polyclinic.report.reading import read_runs
from polyclinic.report.score_tables import comparison_table
from tests.report.invented import write_run


@pytest.fixture(scope="module")
def table(study):
    return comparison_table(read_runs([study]), "dice")


def test_the_csv_holds_every_number_in_full(table):
    head, *rows = csv.reader(io.StringIO(to_csv(table)))
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
    text = to_latex(table)
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
    text = to_latex(table)
    spread = rf"{{\scriptsize$\pm${100 * best.spread:.2f}}}"
    assert rf"\textbf{{{100 * best.value:.2f}}}{spread}" in text
    assert rf"\underline{{{100 * second.value:.2f}}}" in text


def test_braces_of_the_latex_are_balanced_and_names_escaped(tmp_path):
    write_run(tmp_path, "A_1 & 50% {x} ~^$#\\", study="s", sites=("site_1", "a&b"))
    write_run(tmp_path, "B", study="s", sites=("site_1", "a&b"))
    text = to_latex(comparison_table(read_runs([tmp_path / "s"]), "dice"))
    assert r"A\_1 \& 50\% \{x\} \textasciitilde{}\textasciicircum{}\$\#\textbackslash{}" in text
    assert r"site\_1 & a\&b" in text
    plain = text.replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")


def test_an_unfinished_method_gets_dashes(tmp_path):
    write_run(tmp_path, "A")
    write_run(tmp_path, "B", stop=1, started="2027")
    table = comparison_table(read_runs([tmp_path / "demo"]), "dice")
    assert to_latex(table).splitlines()[-3].startswith("B & -- & --")
    assert to_csv(table).splitlines()[2].startswith("B" + "," * 2 * len(table.columns) + ",shared,")


def test_a_table_of_one_region_has_no_row_of_regions(tmp_path):
    write_run(tmp_path, "A", regions=("faz",))
    text = to_latex(comparison_table(read_runs([tmp_path / "demo"]), "hd95"))
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
