"""Equivalence: N replicas make the steps that one process makes with N times the batch.

If a step aggregates gradients from any of the workers, there is no such process. There the mean of
the gradients must be applied.
"""

import pytest

from suite.harness.checks import equivalence, program_results, supervisor
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim(
    "mwms/equals-large-batch",
    "mirrored/equals-large-batch",
    "custom-mirrored/exactly-once",
    "dtensor/equals-single",
    "mwms/communication",
    "estimator/communication",
)
@pytest.mark.cases(
    several=True, synchronous=True, flags=("dump-weights", "optimizer"), backends="each"
)
@scenario(fault_free.large_batch)
def test_replicas_equal_one_process_on_the_large_batch(outcome):
    equivalence.equals_large_batch(outcome.run, outcome.reference)


@pytest.mark.claim("training/epoch-metrics")
@pytest.mark.cases(
    several=True, synchronous=True, flags=("dump-weights", "optimizer"), events=("epoch",)
)
@scenario(fault_free.large_batch)
def test_epochs_have_the_metrics_of_one_process(outcome):
    equivalence.epoch_metrics_equal_large_batch(outcome.run, outcome.reference)


@pytest.mark.claim("training/documents-optimizer")
@pytest.mark.cases(
    families=("mirrored", "custom-mirrored"), flags=("dump-weights", "optimizer"), flavors="first"
)
@scenario(fault_free.adam)
def test_replicas_equal_one_process_with_the_documents_optimizer(outcome):
    equivalence.equals_large_batch(outcome.run, outcome.reference)


@pytest.mark.claim("training/documents-optimizer")
@pytest.mark.cases(families=("dtensor",), flags=("audit-input", "dump-weights", "optimizer"))
@scenario(fault_free.audited_adam)
def test_adam_of_the_document_makes_the_steps_of_numpy(outcome):
    equivalence.makes_adams_steps(outcome)


@pytest.mark.claim("ps1/synchronous")
@pytest.mark.cases(aggregates=True, flags=("audit-input", "dump-weights"))
@scenario(fault_free.aggregated)
def test_sync_replicas_equal_one_process_on_the_large_batch(outcome):
    supervisor.aggregates_equal_large_batch(outcome)


@pytest.mark.claim("mwms/equals-large-batch")
@pytest.mark.cases(
    of_user=True,
    distributed=True,
    synchronous=True,
    events=("step", "weights"),
    controls=("length", "batch-size", "seed"),
    deterministic=True,
    equivalent=True,
)
@scenario(fault_free.one_worker_on_the_large_batch)
def test_workers_equal_one_worker_on_the_large_batch(outcome):
    equivalence.equals_large_batch(outcome.run, outcome.reference)


@pytest.mark.claim(
    "mwms/equals-large-batch",
    "mirrored/equals-large-batch",
    "custom-mirrored/exactly-once",
    "dtensor/equals-single",
)
@pytest.mark.cases(several=True, synchronous=True, flags=("dump-weights", "optimizer"))
@scenario(fault_free.one_replica, fault_free.four_replicas)
def test_any_number_of_replicas_equals_one_process(outcome):
    equivalence.equals_large_batch(outcome.run, outcome.reference)


@pytest.mark.claim("mwms/xla")
@pytest.mark.cases(flags=("jit",), flavors="first")
@scenario(fault_free.compiled_gradients, fault_free.compiled_step_of_one)
def test_what_xla_compiles_makes_the_same_steps(outcome):
    equivalence.equals_large_batch(outcome.run, outcome.reference)


@pytest.mark.claim("mwms/xla")
@pytest.mark.cases(flags=("jit",), flavors="first")
@scenario(fault_free.compiled_step)
def test_xla_compiles_the_step_of_several_replicas(outcome):
    equivalence.equals_large_batch(outcome.run, outcome.reference)


@pytest.mark.claim("mirrored/equals-large-batch")
@pytest.mark.cases(families=("mirrored",), fit=True)
@scenario(fault_free.mixed_precision)
def test_replicas_equal_one_process_in_mixed_precision(outcome):
    equivalence.equals_large_batch(outcome.run, outcome.reference)


@pytest.mark.claim("dtensor/model-parallel")
@pytest.mark.cases(families=("dtensor",))
@scenario(small_programs.remeshed)
def test_weights_in_shards_make_the_same_steps(outcome):
    equivalence.equals_large_batch(outcome.sharded, outcome.reference)


@pytest.mark.claim("dtensor/keras-optimizer")
@pytest.mark.cases(families=("dtensor",))
@scenario(small_programs.keras_dtensor_optimizer)
def test_the_optimizer_of_keras_makes_the_same_steps(outcome):
    equivalence.equals_large_batch(outcome.run, outcome.reference)


@pytest.mark.claim("dtensor/keras-optimizer")
@pytest.mark.cases(families=("dtensor",))
@scenario(small_programs.keras_dtensor_optimizer_apart)
def test_keras_optimizer_correct_uncombined_all_reduces(outcome):
    equivalence.equals_large_batch(outcome.run, outcome.reference)


@pytest.mark.claim("dtensor/multi-client", "dtensor/equals-single")
@pytest.mark.cases(families=("dtensor",))
@scenario(fault_free.clients)
def test_clients_of_one_mesh_make_the_same_steps(outcome):
    equivalence.equals_large_batch(outcome.run, outcome.reference)


@pytest.mark.claim("ps1/synchronous")
@pytest.mark.cases(families=("ps1",), aggregates=True)
@scenario(small_programs.aggregates)
def test_fresh_gradients_are_averaged_and_stale_ones_dropped(outcome):
    program_results.fresh_gradients_are_averaged(outcome)
