import shutil

import pytest

from polyclinic.data.errors import DataError, Findings
from polyclinic.data.folder import read_site
from polyclinic.data.site_files import read_csv
from polyclinic.data.splits import splits_of, write_splits
from polyclinic.data.splitting import SplitRule
from tests.data.folders import draw_case, write_listing, write_picture, write_site


def finalize(folder, rule=None):
    """What `splits_of` gives, kept beside the folder, with the mistakes found on the way."""
    splits_folder = folder.parent / "kept"
    site = read_site(folder)
    mistakes = Findings(site.name, folder)
    splits = splits_of(site, rule or SplitRule(), splits_folder, mistakes)
    if not mistakes.lines:
        splits.write()
    return dict(splits.of), mistakes.lines


def kept_file(folder):
    (file,) = (folder.parent / "kept").iterdir()
    return file


def everything_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_cut_is_kept_beside_the_runs_and_reused_and_the_sites_folder_only_read(tmp_path):
    folder = write_site(tmp_path / "alpha", 10)
    before = everything_in(folder)
    first, mistakes = finalize(folder)
    written = kept_file(folder).read_bytes()

    assert mistakes == []
    assert finalize(folder) == (first, [])
    assert kept_file(folder).read_bytes() == written
    assert everything_in(folder) == before
    assert kept_file(folder).name.startswith("alpha-")
    assert read_csv(kept_file(folder))[1][0] == {
        "case": "00",
        "patient": "00",
        "split": first["00"],
        "rule": "ratio 0.7 0.1 0.2; seed 0",
        "folder": str(folder),
    }


def test_a_cut_is_found_again_wherever_the_data_lies(tmp_path):
    folder = write_site(tmp_path / "alpha", 10)
    first, _ = finalize(folder)
    kept_file(folder).write_text(kept_file(folder).read_text().replace(",val,", ",train,"))
    (tmp_path / "moved").mkdir()
    moved = folder.rename(tmp_path / "moved" / "alpha")
    (tmp_path / "kept").rename(tmp_path / "moved" / "kept")

    assert finalize(moved) == ({**first, **{n: "train" for n in first if first[n] == "val"}}, [])


def test_the_split_in_a_sites_folder_counts_and_is_written_only_when_asked(tmp_path):
    folder = write_site(tmp_path / "alpha", 10)
    assert write_splits(folder, SplitRule(seed=3)) == [folder / "splits.csv"]
    written = {row["case"]: row["split"] for row in read_csv(folder / "splits.csv")[1]}

    assert finalize(folder, SplitRule(seed=3)) == (written, [])
    assert not (tmp_path / "kept").exists()
    assert "now asked for is" in finalize(folder)[1][0]
    with pytest.raises(DataError, match=r"splits.csv: is there already; delete it to cut anew"):
        write_splits(folder, SplitRule(seed=4))


def test_all_sites_of_a_folder_are_split_or_none(tmp_path):
    write_site(tmp_path / "sites" / "alpha", 10)
    few = write_site(tmp_path / "sites" / "beta", 2)
    with pytest.raises(DataError, match="site beta: 2 patients cannot be divided"):
        write_splits(tmp_path / "sites", SplitRule())
    assert not (tmp_path / "sites" / "alpha" / "splits.csv").exists()
    shutil.rmtree(few)
    write_site(few, 6)
    files = write_splits(tmp_path / "sites", SplitRule(folds=2))
    assert [file.name for file in files] == ["folds-2.csv"] * 2


def test_a_complete_split_is_not_cut_again(tmp_path):
    folder = write_site(tmp_path / "alpha", 3)
    write_listing(folder, [("00", "a", "train"), ("01", "b", "val"), ("02", "c", "test")])
    with pytest.raises(DataError, match="site alpha: has a complete split of its own"):
        write_splits(folder, SplitRule())


def test_what_is_written_counts_even_when_edited_by_hand(tmp_path):
    folder = write_site(tmp_path / "alpha", 10)
    first, _ = finalize(folder)
    moved = next(name for name, split in first.items() if split == "train")
    file = kept_file(folder)
    file.write_text(file.read_text().replace(f"{moved},{moved},train", f"{moved},{moved},test"))

    assert finalize(folder) == ({**first, moved: "test"}, [])


def test_cases_that_appear_later_are_an_error_that_says_what_to_do(tmp_path):
    folder = write_site(tmp_path / "alpha", 10)
    finalize(folder)
    image, mask = draw_case(99)
    write_picture(folder / "images" / "new.png", image)
    write_picture(folder / "masks" / "new.png", mask)

    (mistake,) = finalize(folder)[1]
    assert "site alpha: new: new since the split was kept; mend" in mistake
    assert f"{kept_file(folder)}, or delete it to cut anew" in mistake


def test_cases_that_are_gone_are_an_error(tmp_path):
    folder = write_site(tmp_path / "alpha", 10)
    finalize(folder)
    (folder / "images" / "03.png").unlink()
    (folder / "masks" / "03.png").unlink()

    assert "03: in the kept split but gone" in finalize(folder)[1][0]


def test_another_rule_has_a_cut_of_its_own_and_changes_no_other(tmp_path):
    folder = write_site(tmp_path / "alpha", 10)
    first, _ = finalize(folder)
    other, mistakes = finalize(folder, SplitRule(ratio=(0.6, 0.2, 0.2)))

    assert mistakes == []
    assert other != first
    assert finalize(folder) == (first, [])
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_another_ratio_than_that_of_the_sites_own_split_is_an_error(tmp_path):
    folder = write_site(tmp_path / "alpha", 10)
    write_splits(folder, SplitRule())

    (mistake,) = finalize(folder, SplitRule(ratio=(0.6, 0.2, 0.2)))[1]
    assert 'cut by "ratio 0.7 0.1 0.2; seed 0", now asked for is "ratio 0.6 0.2 0.2' in mistake


def test_other_patients_than_when_it_was_cut_are_an_error(tmp_path):
    folder = write_site(tmp_path / "alpha", 10)
    finalize(folder)
    write_listing(folder, [(f"{n:02d}", f"p{n // 2}") for n in range(10)], header="case,patient")

    assert "of another patient" in finalize(folder)[1][0]


def test_a_hand_edited_file_is_checked(tmp_path):
    folder = write_site(tmp_path / "alpha", 10)
    write_listing(folder, [(f"{n:02d}", f"p{n // 2}") for n in range(10)], header="case,patient")
    write_splits(folder, SplitRule())
    file = folder / "splits.csv"
    lines = file.read_text().splitlines()
    lines[1] = lines[1].replace("train", "test") if "train" in lines[1] else "00,p0,train,x"
    lines[3] = "02,p1,tets,ratio 0.7 0.1 0.2; seed 0"
    file.write_text("\n".join(lines))

    mistakes = " ".join(finalize(folder)[1])
    assert "02: in a kept split other than train, val, test" in mistakes
    assert "p0, p1: patients and in several kept splits" in mistakes


def test_a_file_without_its_columns_is_refused(tmp_path):
    folder = write_site(tmp_path / "alpha", 4)
    (folder / "splits.csv").write_text("case,split\n00,train\n")

    assert "lacks a column" in finalize(folder)[1][0]
    (folder / "splits.csv").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in finalize(folder)[1][0]


def test_a_complete_split_of_the_site_is_used_and_nothing_written(tmp_path):
    folder = write_site(tmp_path / "alpha", 3)
    write_listing(folder, [("00", "a", "train"), ("01", "b", "val"), ("02", "c", "test")])

    assert finalize(folder) == ({"00": "train", "01": "val", "02": "test"}, [])
    assert not (tmp_path / "kept").exists()


def test_validation_is_cut_from_train_by_patient_and_test_stays(tmp_path):
    folder = write_site(tmp_path / "alpha", 10)
    rows = [(f"{n:02d}", f"p{n // 2}", "test" if n < 2 else "train") for n in range(10)]
    write_listing(folder, rows)

    of, mistakes = finalize(folder)
    assert mistakes == []
    assert (of["00"], of["01"]) == ("test", "test")
    assert sorted(of.values()) == ["test"] * 2 + ["train"] * 6 + ["val"] * 2
    for n in range(2, 10, 2):
        assert of[f"{n:02d}"] == of[f"{n + 1:02d}"]


def test_a_test_set_that_changed_after_the_cut_is_an_error(tmp_path):
    folder = write_site(tmp_path / "alpha", 6)
    rows = [(f"{n:02d}", f"{n:02d}", "test" if n < 2 else "train") for n in range(6)]
    write_listing(folder, rows)
    finalize(folder)
    write_listing(folder, [*rows[:1], ("01", "01", "train"), *rows[2:]])

    assert "01: given for testing but kept for something else" in finalize(folder)[1][0]


def test_without_a_share_for_validation_the_given_split_is_all(tmp_path):
    folder = write_site(tmp_path / "alpha", 2)
    write_listing(folder, [("00", "a", "train"), ("01", "b", "test")])

    assert finalize(folder, SplitRule(ratio=(0.8, 0, 0.2)))[0] == {"00": "train", "01": "test"}


def test_folds_are_written_in_one_file_and_each_case_is_tested_once(tmp_path):
    folder = write_site(tmp_path / "alpha", 10)
    found = [finalize(folder, SplitRule(folds=5, fold=fold)) for fold in range(5)]

    assert all(mistakes == [] for _, mistakes in found)
    for name in found[0][0]:
        assert [of[name] for of, _ in found].count("test") == 1
    header, _ = read_csv(kept_file(folder))
    assert header[:-1] == ["case", "patient", "fold0", "fold1", "fold2", "fold3", "fold4", "rule"]


GIVEN = [("00", "a", "train"), ("01", "b", "test"), ("02", "c", "val"), ("03", "d", "train")]


def test_given_test_cases_stay_and_folds_of_the_rest_validate_in_turn(tmp_path):
    folder = write_site(tmp_path / "alpha", 4)
    write_listing(folder, GIVEN)
    found = [finalize(folder, SplitRule(folds=3, fold=fold)) for fold in range(3)]

    assert all(mistakes == [] for _, mistakes in found)
    assert [of.pop("01") for of, _ in found] == ["test"] * 3
    for name in ("00", "02", "03"):
        assert sorted(of[name] for of, _ in found) == ["train", "train", "val"]


def test_where_the_study_says_so_a_given_split_is_cut_anew(tmp_path):
    folder = write_site(tmp_path / "alpha", 4)
    write_listing(folder, GIVEN)
    found = [finalize(folder, SplitRule(folds=4, fold=fold, recut=True)) for fold in range(4)]

    assert all(mistakes == [] for _, mistakes in found)
    for name in ("00", "01", "02", "03"):
        assert [of[name] for of, _ in found].count("test") == 1
    assert finalize(folder, SplitRule())[0] == {case: split for case, _, split in GIVEN}


def test_too_few_patients_are_a_mistake_of_the_site(tmp_path):
    folder = write_site(tmp_path / "alpha", 2)

    assert finalize(folder)[1] == ["site alpha: 2 patients cannot be divided into train, val, test"]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_seed_is_part_of_the_rule(tmp_path, seed):
    folder = write_site(tmp_path / "alpha", 10)
    write_splits(folder, SplitRule(seed=seed))

    assert finalize(folder, SplitRule(seed=seed))[1] == []
    assert "seed" in finalize(folder, SplitRule(seed=seed + 1))[1][0]
