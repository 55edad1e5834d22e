"""Convergence: the loss falls, the accuracy rises, and several workers get where one gets."""

import pytest

from suite.harness import checks, scenarios


@pytest.mark.claim("mwms/converges", "single/converges")
@pytest.mark.cases(events=("epoch",))
def test_loss_falls_epoch_by_epoch(healthy):
    checks.loss_falls(healthy)


@pytest.mark.claim("mwms/converges", "single/converges")
@pytest.mark.cases(events=("epoch",))
def test_accuracy_rises_epoch_by_epoch(healthy):
    checks.accuracy_rises(healthy)


@pytest.mark.claim("mwms/converges", "single/converges", "ps1/asynchronous", "ps1/synchronous")
@pytest.mark.cases(events=("step",))
def test_losses_of_steps_fall(healthy):
    checks.step_losses_fall(healthy)


@pytest.mark.claim("mwms/converges")
@pytest.mark.cases(distributed=True, synchronous=True, events=("epoch",))
def test_several_workers_get_where_one_gets(healthy, scenario):
    checks.converges_to_baseline(healthy, scenario(scenarios.baseline))
