"""Agreement: synchronous replicas report the same metrics and hold the same weights."""

import pytest

from suite.harness.checks import agreement, dtensor_layouts, startup
from suite.harness.core.errors import NotExamined
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import fault_free


@pytest.mark.claim("mwms/replicas-agree")
@pytest.mark.cases(distributed=True, synchronous=True, events=("epoch",), level="observed")
def test_workers_agree_on_metrics(healthy):
    agreement.workers_agree_on_metrics(healthy)


@pytest.mark.claim("mwms/replicas-agree")
@pytest.mark.cases(distributed=True, synchronous=True, events=("weights",), level="observed")
def test_workers_agree_on_weights(healthy):
    agreement.workers_agree_on_weights(healthy)


@pytest.mark.claim("mirrored/replicas", "dtensor/replicated")
@pytest.mark.cases(flags=("devices",), events=("weights",), distributed=False, of_user=False)
def test_there_is_a_replica_on_each_device(healthy):
    agreement.replica_on_each_device(healthy)
    agreement.replicas_in_sync(healthy)


@pytest.mark.claim("mirrored/replicas", "mwms/replicas-agree", "dtensor/replicated")
@pytest.mark.cases(of_user=True, synchronous=True, events=("weights",), level="observed")
def test_replicas_of_a_task_stay_in_sync(healthy):
    if not any(e.get("copies") for e in healthy.of("weights")):
        raise NotExamined("each of its tasks has one device")
    agreement.replicas_in_sync(healthy)


@pytest.mark.claim("dtensor/multi-client")
@pytest.mark.cases(families=("dtensor",))
@scenario(fault_free.clients_alone)
def test_clients_draw_the_same_weights(outcome):
    agreement.workers_agree_on_weights(outcome)


@pytest.mark.claim("dtensor/multi-client")
@pytest.mark.cases(families=("dtensor",))
@scenario(fault_free.clients)
def test_clients_form_one_mesh_and_agree(outcome):
    clients = outcome.run
    startup.cluster_as_given(clients)
    agreement.replica_on_each_device(clients)
    agreement.workers_agree_on_metrics(clients)
    agreement.workers_agree_on_weights(clients)
    agreement.validation_agrees(clients)
    dtensor_layouts.weights_replicated(clients)
    dtensor_layouts.batch_sharded(clients)


@pytest.mark.claim("mwms/replicas-agree")
@pytest.mark.cases(flags=("devices",), distributed=True)
@scenario(fault_free.several_devices)
def test_every_device_of_every_worker_is_a_replica(outcome):
    agreement.replica_on_each_device(outcome)
    agreement.replicas_in_sync(outcome)
