"""The command `doctor`: a table of sections, each printed as soon as it is known.

Exit codes: 0 nothing makes training fail; 1 something does; 2 invalid arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console

from reports.core.table import Column
from reports.core.text import clean, plural
from reports.render.terminal_layout import Printer, widths
from suite.doctor import (
    addresses,
    machine,
    readers,
    tensorflow_probe,
    tf_config,
    unsupported,
    variables,
)
from suite.doctor.findings import PROBLEM, WARNING, Finding, Pairs, Section
from suite.doctor.tf_config import Config, Refused
from suite.harness.cluster import addresses as networks
from suite.harness.core.errors import BadInput
from suite.harness.environment import gpus as gpu_list
from suite.harness.environment import interpreter as interpreters
from suite.harness.environment.interpreter import Interpreter
from suite.harness.tables import programs
from suite.harness.tables.expectations import Expectations

DONE, PROBLEMS, BAD_USAGE = 0, 1, 2
CODES = {
    DONE: "nothing was found that makes training fail",
    PROBLEMS: "something makes training fail: the report says what, and what would be right",
    BAD_USAGE: "invalid arguments, with one line on stderr",
}
STYLES = {PROBLEM: "bold red", WARNING: "yellow"}


class Subject:
    """What is examined; parts that several sections need are found once, when first needed."""

    def __init__(
        self,
        python: str | None,
        environment: Mapping[str, str] = os.environ,
        trainer: str | None = None,
    ) -> None:
        """Raise BadInput if `python` or `trainer` is no program."""
        self.environment = environment
        self.program = programs.read(Path(trainer)) if trainer else None
        self.config = Config(environment.get(tf_config.VARIABLE))
        self.no_tensorflow = ""
        self.interpreter: Interpreter | None = None
        try:
            self.interpreter = interpreters.describe(python)
        except BadInput as error:
            if "has no TensorFlow" not in str(error):
                raise
            self.no_tensorflow = str(error)

    @property
    def tensorflow(self) -> str:
        """Return the version of TensorFlow; "" without it."""
        return self.interpreter.tensorflow if self.interpreter else ""

    @cached_property
    def cluster(self) -> list[addresses.Address]:
        """Return the addresses of TF_CONFIG; none if it is not valid."""
        try:
            return addresses.listed(self.config.cluster)
        except Refused:
            return []

    @cached_property
    def network(self) -> networks.Network:
        return networks.probe().with_closed_ports("doctor")

    @cached_property
    def gpus(self) -> tuple[tuple[str, ...], str]:
        """Return the GPUs, and why they cannot be known."""
        try:
            return gpu_list.discover_gpus(self.environment), ""
        except BadInput as error:
            return (), str(error)

    @property
    def capabilities(self) -> unsupported.Machine:
        return unsupported.Machine(
            gpu=gpu_list.enough(self.gpus[0], machine.WORKERS),
            namespaces=self.network.kind == networks.NAMESPACE,
            nodes=False,  # this is one machine
            netem=networks.has_netem,
        )


# --- sections -----------------------------------------------------------------------------------


def tf_config_section(subject: Subject) -> Section:
    config = subject.config
    found = readers.readings(config, subject.tensorflow)
    name, why = readers.intended(config)
    facts = [("TF_CONFIG", "not set" if config.text is None else config.text or "(empty)")]
    if name:
        facts.append(("This cluster is for", f"{name}, because {why}"))
    result = tf_config.findings(config)
    if not any(finding.level == PROBLEM for finding in result):
        result += role_findings(found, name)
    result += addresses.form_findings(subject.cluster)
    if not any(finding.level == PROBLEM for finding in result):
        own = [each for each in subject.cluster if each.task == f"{config.job}/{config.index}"]
        result += [finding for each in own for finding in addresses.own_findings(each)]
    result += addresses.name_findings(subject.cluster)
    return Section(
        "TF_CONFIG",
        tuple(facts),
        tuple(result),
        grid_title="What each reader makes of it",
        grid=tuple((reading.reader, reading.sentence) for reading in found),
        data={"readers": [reading.to_dict() for reading in found], "intended": name},
    )


def role_findings(found: Sequence[readers.Reading], intended: str) -> list[Finding]:
    """Return what is wrong for the reader that the cluster is for; others may refuse it."""
    reading = next((each for each in found if each.reader == intended), None)
    if reading is None:
        return []
    if reading.outcome in readers.FAILURES:
        return [Finding(PROBLEM, f"{intended} {reading.result}", reading.hint)]
    return [Finding(WARNING, reading.warning, reading.hint)] if reading.warning else []


def variables_section(subject: Subject) -> Section:
    environment = subject.environment
    facts = variables.facts(environment)
    none = (("Variables", f"none of {len(variables.VARIABLES)} that change training is set"),)
    found = variables.findings(environment, subject.cluster, subject.interpreter)
    return Section("Environment variables", facts or none, tuple(found))


def machine_section(subject: Subject) -> Section:
    noise = machine.measure_noise()  # first, before the probes below compete for processors
    gpus, gpu_error = subject.gpus
    netem = networks.has_netem()
    found = [
        *machine.resource_findings(machine.free_gib()),
        *machine.network_findings(subject.network, netem),
        *([Finding(WARNING, gpu_error)] if gpu_error else []),
        *machine.noise_findings(noise),
    ]
    facts = [
        *machine.resource_facts(),
        *machine.network_facts(subject.network, netem),
        *machine.gpu_facts(gpus),
        *machine.noise_facts(noise),
    ]
    data = {"noise": vars(noise), "network": subject.network.to_dict(), "gpus": list(gpus)}
    return Section("Machine", tuple(facts), tuple(found), data=data)


def tensorflow_section(subject: Subject) -> Section:
    if subject.interpreter is None:
        return Section("TensorFlow", findings=(Finding(PROBLEM, subject.no_tensorflow),))
    found, error = tensorflow_probe.ask(subject.interpreter.python, subject.environment)
    return Section(
        "TensorFlow",
        tuple(tensorflow_probe.facts(subject.interpreter, found)),
        tuple(tensorflow_probe.findings(subject.interpreter, found, error, len(subject.gpus[0]))),
        data={"interpreter": subject.interpreter.to_dict(), "features": found},
    )


def program_section(subject: Subject) -> Section | None:
    """Return what is known of the program of --trainer; None without one."""
    if subject.program is None:
        return None
    from suite.doctor import program  # imports all tests

    found = program.examine(subject.program)
    return Section(
        "Your program",
        tuple(program.facts(subject.program, found)),
        listings=(program.listing(found),),
        data={"program": subject.program.to_dict(), **vars(found)},
    )


def unsupported_section(subject: Subject) -> Section:
    title = "What a run of the suite will report"
    if subject.interpreter is None:
        return Section(title, (("Not known", "it depends on the version of TensorFlow"),))
    rows = Expectations.load().rows
    if subject.program:
        wanted = {unsupported.ANY, subject.program.row.like}
        rows = tuple(row for row in rows if row.trainer in wanted)
    matching = unsupported.matching(rows, subject.interpreter, subject.capabilities)
    return Section(
        title,
        listings=unsupported.listings(matching),
        data={"rows": [unsupported.to_dict(row) for row in matching]},
    )


SECTIONS: Mapping[str, Callable[[Subject], Section | None]] = {
    "program": program_section,
    "tf_config": tf_config_section,
    "variables": variables_section,
    "machine": machine_section,
    "tensorflow": tensorflow_section,
    "unsupported": unsupported_section,
}


# --- output -------------------------------------------------------------------------------------


def draw(section: Section, out: Printer) -> None:
    """Print a section: facts, findings with their hints, grid, lists."""
    out.line()
    out.line(section.title, "bold")
    _draw_pairs(section.facts, out)
    for finding in section.findings:
        out.line(clean(f"{finding.level}: {finding.text}"), STYLES[finding.level])
        if finding.hint:
            out.line(clean(finding.hint), indent=2)
    if section.grid:
        out.line(section.grid_title, "cyan")
        _draw_pairs(section.grid, out)
    for listing in section.listings:
        out.line(listing.title, "cyan")
        for text, details in listing.entries or (("none", ""),):
            out.line(text, indent=2)
            out.line(details, "dim", indent=4)
        if listing.note:
            out.line(listing.note, "dim")


def _draw_pairs(pairs: Pairs, out: Printer) -> None:
    columns = (Column(""), Column(""))
    shown = [(label, clean(value)) for label, value in pairs]
    sizes = widths(columns, shown, out.width)
    out.grid(columns, [[(label, "dim"), (value, "")] for label, value in shown], sizes)


@dataclass
class Totals:
    """Findings so far."""

    problems: int = 0
    warnings: int = 0

    def add(self, section: Section) -> None:
        self.problems += section.problems
        self.warnings += len(section.findings) - section.problems

    @property
    def code(self) -> int:
        return PROBLEMS if self.problems else DONE

    def __str__(self) -> str:
        verdict = "Training will fail" if self.problems else "Nothing makes training fail"
        counts = f"{plural(self.problems, 'problem')}, {plural(self.warnings, 'warning')}"
        return f"{verdict}: {counts}."


def run(options: argparse.Namespace) -> int:
    """Examine everything and print it; return the exit code."""
    subject = Subject(options.python, trainer=options.trainer)
    totals, found = Totals(), {}
    for name, examine in SECTIONS.items():
        section = examine(subject)
        if section is None:
            continue
        found[name] = section
        totals.add(section)
        if not options.json:
            show(lambda out, section=section: draw(section, out))
    if options.json:
        sections = {name: section.to_dict() for name, section in found.items()}
        result = {"exit_code": totals.code, **vars(totals), "sections": sections}
        print(json.dumps(clean(result), indent=2, default=str))
    else:
        style = STYLES[PROBLEM] if totals.problems else "bold green"
        show(lambda out: (out.line(), out.line(str(totals), style)))
    return totals.code


def show(draw_on: Callable[[Printer], object]) -> None:
    """Print through Rich at once; Rich would end the process when a pipe is closed."""
    console = Console()
    with console.capture() as capture:
        draw_on(Printer(console))
    sys.stdout.write(capture.get())
    sys.stdout.flush()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--python", metavar="PATH", help="interpreter with TensorFlow; default: this one"
    )
    parser.add_argument(
        "--trainer", metavar="PATH", help="your program: train.py, train.toml; what a run will do"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
