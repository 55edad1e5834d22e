"""Tests of suite/claims.toml and its reader: no claim is misread, misspelled or missing."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from reference_trainers import BY_NAME, TRAINERS
from suite.harness.core.errors import BadInput
from suite.harness.pytest_plugin.parametrization import Needs
from suite.harness.tables.claims import Claims
from suite.meta import claims_page, sources

GOOD = """
approaches = ["one", "two"]
[[claim]]
id = "family/what"
text = "It does."
origin = "document"
url = "https://example.org/page"
tensorflow = ">=2.4"
trainers = ["one"]
"""


def load(tmp_path: Path, content: str) -> Claims:
    path = tmp_path / "claims.toml"
    path.write_text(content)
    return Claims.load(path)


def test_every_trainer_has_claims():
    claims = Claims.load()
    assert all(claims.of(trainer) for trainer in TRAINERS)


def test_every_approach_has_a_claim():
    claims = Claims.load()
    assert {name for claim in claims.values() for name in claim.trainers} == set(claims.approaches)


def test_every_text_is_one_sentence():
    for claim in Claims.load().values():
        assert claim.text.endswith(".")
        assert "\n" not in claim.text


def test_every_claim_of_a_trainer_that_exists_has_a_test():
    untested = Claims.load().without_test(sources.claimed(), TRAINERS)
    assert [claim.id for claim in untested] == []


# Tests of the harness itself: of the observer, and of the standalone reproductions.
WITHOUT_CLAIM = ("test_observer", "test_findings")


@pytest.mark.parametrize(
    "path", sources.files("suite/conformance/*.py", "suite/faults/*.py"), ids=sources.name
)
def test_every_test_names_a_claim_of_each_trainer_that_it_examines(path: Path):
    if path.stem in WITHOUT_CLAIM:
        return
    claims, without = Claims.load(), []
    shown = {row: {claim.id for claim in claims.of(row)} for row in TRAINERS}
    for name, function in vars(import_module(sources.name(path)[:-3].replace("/", "."))).items():
        marks = {mark.name: mark for mark in getattr(function, "pytestmark", ())}
        if not name.startswith("test_") or "cases" not in marks:
            continue
        needs = Needs.read(name, marks["cases"].kwargs, claims)
        named = marks["claim"].args if "claim" in marks else ()
        examined = [row for row in TRAINERS if needs.met_by(row)]
        without += [(name, row.name) for row in examined if shown[row].isdisjoint(named)]
    assert without == []


def test_a_claim_names_the_option_that_all_of_its_tests_need():
    """Without it, no contributed run could be complete."""
    options: dict[str, set[str]] = {}
    for test in claims_page.tests():
        for claim in test.claims:
            options.setdefault(claim, set()).add(test.option)
    needed = {claim: "" if "" in found else min(found) for claim, found in options.items()}
    assert {claim.id: claim.option for claim in Claims.load().values()} == needed


def test_every_claim_has_its_place_in_the_reference():
    families = claims_page.families()
    listed = [each.id for group in families.values() for each in group]
    assert listed == list(Claims.load())
    for family, group in families.items():
        page = claims_page.page(family)
        for each in group:
            assert page.count(f"\n({each.anchor})=\n## {each.id}\n") == 1
            assert each.claim.text in page
            assert all(f"`{test.name}`" in page for test in each.tests)
    assert len({each.anchor for group in families.values() for each in group}) == len(listed)


def test_every_test_makes_a_check_or_says_what_else_it_does():
    idle = {test.name for test in claims_page.tests() if test.claims and not test.checks}
    assert idle == {"test_scaling_over_devices"}  # its claim says that it only measures


def test_every_claim_that_a_test_names_exists():
    Claims.load().check(sources.claimed())


def test_a_claim_is_read(tmp_path: Path):
    claim = load(tmp_path, GOOD)["family/what"]
    assert (claim.family, claim.trainers, claim.keras) == ("family", ("one",), "")
    assert claim.since == ""
    later = load(tmp_path, GOOD + 'since = "2.8"\n')["family/what"]
    assert later.since == "2.8"


def test_an_unknown_id_names_the_nearest():
    with pytest.raises(BadInput, match=r"'mwms/converge' \(did you mean 'mwms/converges'\?\)"):
        Claims.load()["mwms/converge"]


def test_a_trainer_shows_the_claims_that_name_it():
    claims = Claims.load()
    shown = {claim.id for claim in claims.of(BY_NAME["supervisor_parameter_server"])}
    assert {"ps1/asynchronous", "cluster/devices"} <= shown
    assert not {"ps1/synchronous", "mwms/converges", "cluster/tf-config"} & shown


def test_a_trainer_that_no_claim_names_shows_its_families():
    trainer = replace(BY_NAME["single_process"], name="my_own", families=("ps1",))
    assert {claim.family for claim in Claims.load().of(trainer)} == {"ps1"}


def test_a_claim_without_a_test_is_found(tmp_path: Path):
    claims = load(tmp_path, GOOD)
    trainer = replace(BY_NAME["single_process"], name="one")
    assert [claim.id for claim in claims.without_test((), [trainer])] == ["family/what"]
    assert claims.without_test(["family/what"], [trainer]) == []
    assert claims.without_test((), [replace(trainer, name="two")]) == []


def test_a_claim_is_made_for_its_versions_only():
    claims = Claims.load()
    removed, optimizer = claims["estimator/removed"], claims["dtensor/keras-optimizer"]
    assert removed.made_for("2.16.1", "none")
    assert not removed.made_for("2.15.1", "keras2 2.15.0")
    assert optimizer.made_for("2.21.0", "tf_keras 2.21.0")
    assert optimizer.made_for("2.21.0", "none")
    assert not optimizer.made_for("2.21.0", "keras3 3.15.1")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('text = "It does."', "", "claims.toml, family/what: text is missing"),
        ('text = "It does."', "text = 3", "text must be a str, not 3"),
        ("trainers =", "trainer =", r"unknown key 'trainer' \(did you mean 'trainers'\?\)"),
        ('["one"]\n', '["tow"]\n', r"no approach 'tow' \(did you mean 'two'\?\)"),
        ('["one"]\n', "[]\n", "trainers is missing"),
        ('"document"', '"hearsay"', "origin must be one of document, guide, issue, measured"),
        ('["one"]\n', "[1]\n", r"trainers must be a list of strings, not \[1\]"),
        ("https://", "see ", "url must be an https address"),
        ('">=2.4"', '"2.4 or so"', "not a version or specifier"),
        ('"family/what"', '"Family"', "an id reads family/what"),
        ('">=2.4"', '">=2.4"\nkeras = "keras4"', "not a Keras flavor: 'keras4'"),
        ('">=2.4"', '">=2.4"\nsince = "2.3"', "family/what: since 2.3 is not in tensorflow >=2.4"),
        ('">=2.4"', '">=2.4"\nsince = "lately"', "family/what: since: not a version or specifier"),
        ("[[claim]]", "[[claims]]", r"unknown key 'claims' \(did you mean 'claim'\?\)"),
        ("approaches", "[", "not TOML"),
    ],
)
def test_a_row_that_says_something_wrong_is_refused(
    tmp_path: Path, old: str, new: str, message: str
):
    assert old in GOOD
    with pytest.raises(BadInput, match=message) as refused:
        load(tmp_path, GOOD.replace(old, new))
    assert "\n" not in str(refused.value)


def test_an_id_that_is_there_twice_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="family/what is there twice"):
        load(tmp_path, GOOD + GOOD[GOOD.index("[[claim]]") :])


def test_a_missing_table_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="cannot be read"):
        Claims.load(tmp_path / "none.toml")
