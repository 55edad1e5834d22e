"""Agreement: synchronous replicas report the same and hold the same."""

import pytest

from suite.harness import checks
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import fault_free


@pytest.mark.claim("mwms/replicas-agree")
@pytest.mark.cases(distributed=True, synchronous=True, events=("epoch",))
def test_workers_agree_on_metrics(healthy):
    checks.workers_agree_on_metrics(healthy)


@pytest.mark.claim("mwms/replicas-agree")
@pytest.mark.cases(distributed=True, synchronous=True, events=("weights",))
def test_workers_agree_on_weights(healthy):
    checks.workers_agree_on_weights(healthy)


@pytest.mark.claim("mirrored/replicas", "dtensor/replicated")
@pytest.mark.cases(flags=("devices",), events=("weights",), distributed=False)
def test_there_is_a_replica_on_each_device(healthy):
    checks.replica_on_each_device(healthy)
    checks.copies_are_in_step(healthy)


@pytest.mark.claim("dtensor/multi-client")
@pytest.mark.cases(families=("dtensor",))
@plays(fault_free.clients)
def test_clients_form_one_mesh_and_agree(played):
    clients = played.run
    checks.cluster_as_given(clients)
    checks.replica_on_each_device(clients)
    checks.workers_agree_on_metrics(clients)
    checks.workers_agree_on_weights(clients)
    checks.validation_agrees(clients)
    checks.weights_replicated(clients)
    checks.batch_sharded(clients)


@pytest.mark.claim("mwms/replicas-agree")
@pytest.mark.cases(flags=("devices",), distributed=True)
@plays(fault_free.several_devices)
def test_every_device_of_every_worker_is_a_replica(played):
    checks.replica_on_each_device(played)
    checks.copies_are_in_step(played)
