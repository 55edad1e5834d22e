"""Check that a contributed run is complete and agrees with itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from reports.core import verdicts
from reports.core.text import plural
from reports.matrix.claims import Claim, Claims
from reports.matrix.columns import NO_KERAS
from reports.rundir import frame
from reports.rundir.frame import RunFrames

# Verdicts that mean nothing without a reason, and those that need a link as well.
EXPLAINED = (
    verdicts.FAILED,
    verdicts.HARNESS_ERROR,
    verdicts.KNOWN_DEVIATION,
    verdicts.UNSUPPORTED,
)
LINKED = (verdicts.KNOWN_DEVIATION, verdicts.UNSUPPORTED)


def problems(run: RunFrames, claims: Claims) -> list[str]:
    """Return one line for each reason not to publish the run."""
    parts = (
        _status(run.info),
        frame.contradictions(run),
        _versions(run),
        _explanations(run.verdicts),
        _coverage(run, claims),
    )
    return [line for part in parts for line in part]


def facts(run: RunFrames) -> str:
    """Return the run in a few words: `TensorFlow 2.21.0, 612 verdicts`."""
    version = run.info["versions"].get("tensorflow")
    return f"TensorFlow {version}, {plural(len(run.verdicts), 'verdict')}"


def _status(info: Mapping[str, Any]) -> Iterator[str]:
    git = info.get("git") or {}
    if frame.is_interrupted(info):
        yield "the run is interrupted, without all its tests"
    if info["exit_code"] not in (0, 1):
        yield f"the tests ended with exit code {info['exit_code']}, not 0 or 1"
    if not git.get("commit"):
        yield "run.json names no commit of the suite"
    if git.get("dirty"):
        yield "the suite had local edits: `git` in run.json is dirty"
    for leak in info.get("leaks") or ():
        yield f"the run left behind {leak}"


def _versions(run: RunFrames) -> Iterator[str]:
    """Yield the versions in verdicts that differ from those in run.json."""
    recorded = run.info["versions"]
    for name in ("tensorflow", "python", "suite"):
        if not recorded.get(name):
            yield f"run.json names no version of {name}"
            continue
        for other in sorted(set(run.verdicts[name]) - {recorded[name]}):
            yield f"verdicts have {name} {other or 'empty'}, and run.json has {recorded[name]}"
    flavors = recorded.get("keras")
    known = {NO_KERAS, ""}
    for flavor, version in (flavors if isinstance(flavors, Mapping) else {}).items():
        known.add(f"{flavor} {str(version).removeprefix(f'{flavor} ')}")
    for other in sorted(set(run.verdicts["keras"]) - known):
        yield f"verdicts have {other}, which run.json does not name"


def _explanations(rows: pd.DataFrame) -> Iterator[str]:
    for test in sorted(rows.loc[rows["test"].duplicated(), "test"].unique()):
        yield f"{test} has more than one verdict"
    for row in rows.to_dict("records"):
        missing = "reason" if row["verdict"] in EXPLAINED and not row["reason"] else ""
        missing = missing or ("link" if row["verdict"] in LINKED and not row["url"] else "")
        if missing:
            yield f"{row['test']} is {row['verdict']} without a {missing}"


def _coverage(run: RunFrames, claims: Claims) -> Iterator[str]:
    """Yield approaches and claims without a verdict that run.json does not list either."""
    listed = {entry["trainer"] for entry in run.info.get("not_examined") or ()}
    examined = set(run.verdicts["trainer"])
    for approach in claims.approaches:
        if approach not in examined | listed:
            yield f"{approach} has no verdict, and run.json does not list it as not examined"
    named = zip(run.verdicts["claims"], run.verdicts["trainer"], strict=True)
    covered = {(claim, trainer) for listed, trainer in named for claim in listed}
    for claim in claims.by_id.values():
        for trainer in claim.trainers:
            known = trainer in examined - listed
            if known and _is_due(run, claim) and (claim.id, trainer) not in covered:
                yield f"{claim.id} has no verdict of {trainer}"


def _is_due(run: RunFrames, claim: Claim) -> bool:
    """Return True if a usual run shows the claim, with the run's TensorFlow and a Keras of it."""
    flavors = run.info["versions"].get("keras") or ()
    is_for_keras = not claim.keras or any(flavor in claim.keras for flavor in flavors)
    version = str(run.info["versions"].get("tensorflow"))
    return not claim.option and is_for_keras and claim.is_made_for(version)
