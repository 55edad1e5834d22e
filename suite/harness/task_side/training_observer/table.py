"""All hooks of the observer: where they are installed, and what they call."""

from typing import Any, Dict

from . import (
    checkpoints,
    coordinator,
    counts,
    fit,
    functions,
    hooks,
    layouts,
    reports,
    sessions,
    strategies,
)
from .hooks import Hook

# The modules of Keras 2: tf_keras, of TensorFlow since 2.13, and before.
KERAS = ("tf_keras.src", "keras.src", "keras")


def in_keras_2(module, attribute):
    return tuple("%s.%s:%s" % (keras, module, attribute) for keras in KERAS)


def of_callbacks(name):
    place = "CallbackList.%s" % name
    return in_keras_2("callbacks", place) + ("keras.src.callbacks.callback_list:" + place,)


def of_model(name, keras_3=("keras.src.models.model:Model",)):
    return in_keras_2("engine.training", "Model." + name) + tuple(
        "%s.%s" % (owner, name) for owner in keras_3
    )


def assigned(place, names=("assign", "assign_add", "assign_sub")):
    return tuple(
        Hook(
            "%s.%s" % (place.split(":")[1], name),
            ("%s.%s" % (place, name),),
            before=functions.before_assign,
            outside_fit=True,
        )
        for name in names
    )


PYTHON = "tensorflow.python."
CLUSTER = PYTHON + "distribute.coordinator.cluster_coordinator:"
TRAINER_3 = (
    "keras.src.backend.tensorflow.trainer:TensorFlowTrainer",
    "keras.src.backend.tensorflow.trainer:Trainer",  # since Keras 3.16
)
FUNCTION = PYTHON + "eager.polymorphic_function.polymorphic_function:Function."
FUNCTION_BEFORE_2_11 = PYTHON + "eager.def_function:Function."
REPLICA = PYTHON + "distribute.mirrored_run:_MirroredReplicaThread."
CHECKPOINT = (
    PYTHON + "checkpoint.checkpoint:Checkpoint.",
    PYTHON + "training.tracking.util:Checkpoint.",  # before TensorFlow 2.10
)
SAVE: Dict[str, Any] = {"before": checkpoints.before_save, "always": checkpoints.always_save}
RESTORE: Dict[str, Any] = {
    "before": checkpoints.before_restore,
    "always": checkpoints.always_restore,
}

STRATEGIES = (
    Hook(
        "MultiWorkerMirroredStrategy",
        (
            PYTHON + "distribute.collective_all_reduce_strategy:"
            "CollectiveAllReduceExtended._initialize_strategy",
        ),
        after=strategies.after_collective_created,
    ),
    Hook(
        "MirroredStrategy",
        (PYTHON + "distribute.mirrored_strategy:MirroredExtended.__init__",),
        after=strategies.after_mirrored_created,
    ),
    Hook(
        "ParameterServerStrategy",
        (PYTHON + "distribute.parameter_server_strategy_v2:ParameterServerStrategyV2.__init__",),
        after=strategies.after_parameter_server_created,
    ),
)

MESHES = (
    Hook(
        "create_mesh",
        ("tensorflow.dtensor.python.mesh_util:create_mesh",),
        after=strategies.after_mesh_created,
        optional=True,
    ),
    Hook(
        "create_distributed_mesh",
        ("tensorflow.dtensor.python.mesh_util:create_distributed_mesh",),
        after=strategies.after_mesh_created,
        optional=True,
    ),
    Hook(
        "barrier",
        ("tensorflow.dtensor.python.mesh_util:barrier",),
        before=layouts.before_barrier,
        optional=True,
    ),
)

COORDINATOR = (
    Hook(
        "Server",
        (PYTHON + "training.server_lib:Server.__init__",),
        after=strategies.after_server_created,
    ),
    Hook(
        "Closure.__init__", (CLUSTER + "Closure.__init__",), after=coordinator.after_closure_created
    ),
    Hook("Closure.execute_on", (CLUSTER + "Closure.execute_on",), after=coordinator.after_execute),
    Hook(
        "Worker._process_closure",
        (CLUSTER + "Worker._process_closure",),
        after=coordinator.after_process,
    ),
    Hook(
        "ClusterCoordinator.schedule",
        (CLUSTER + "ClusterCoordinator.schedule",),
        after=coordinator.after_schedule,
    ),
    Hook(
        "ClusterCoordinator.join",
        (CLUSTER + "ClusterCoordinator.join",),
        after=coordinator.after_join,
    ),
)

FIT = (
    Hook(
        "fit", of_model("fit", TRAINER_3), before=fit.before_fit, always=fit.always_fit,
        optional=True,
    ),
    Hook(
        "on_train_begin", of_callbacks("on_train_begin"), after=fit.after_train_begin,
        optional=True,
    ),
    Hook("on_train_end", of_callbacks("on_train_end"), after=fit.after_train_end, optional=True),
    Hook(
        "on_epoch_begin", of_callbacks("on_epoch_begin"), before=fit.before_epoch_begin,
        optional=True,
    ),
    Hook("on_epoch_end", of_callbacks("on_epoch_end"), after=fit.after_epoch_end, optional=True),
    Hook(
        "on_train_batch_begin", of_callbacks("on_train_batch_begin"),
        before=fit.before_batch_begin, optional=True,
    ),
    Hook(
        "on_train_batch_end", of_callbacks("on_train_batch_end"),
        before=fit.before_batch_end, after=fit.after_batch_end,
        repeated=fit.repeated_batch_end, optional=True,
    ),
    Hook("evaluate", of_model("evaluate", TRAINER_3), after=fit.after_evaluate, optional=True),
)  # fmt: skip

UPDATE: Dict[str, Any] = {
    "always": functions.always_update,
    "after": functions.after_update,
    "optional": True,
    "outside_fit": True,
    "in_fit": counts.mark,
}

LOOPS = (
    Hook(
        "Function.__call__",
        (FUNCTION + "__call__", FUNCTION_BEFORE_2_11 + "__call__"),
        before=functions.before_function,
        always=functions.always_function,
        after=functions.after_function,
        outside_fit=True,
        repeated=functions.repeated_call,
    ),
    Hook(
        "Function.get_concrete_function",
        (FUNCTION + "get_concrete_function", FUNCTION_BEFORE_2_11 + "get_concrete_function"),
        before=functions.before_function,
        always=functions.always_function,
        outside_fit=True,
    ),
    Hook(
        "_MirroredReplicaThread.__init__",
        (REPLICA + "__init__",),
        after=functions.after_replica_created,
    ),
    Hook("_MirroredReplicaThread.run", (REPLICA + "run",), before=functions.before_replica_runs),
    Hook(
        "Optimizer.apply_gradients",
        in_keras_2("optimizers.optimizer", "Optimizer.apply_gradients")
        + in_keras_2("optimizers.optimizer_experimental.optimizer", "Optimizer.apply_gradients")
        + ("keras.src.optimizers.base_optimizer:BaseOptimizer.apply_gradients",),
        before=functions.before_apply_gradients,
        **UPDATE,
    ),
    Hook(
        "Optimizer.apply",
        ("keras.src.optimizers.base_optimizer:BaseOptimizer.apply",),
        before=functions.before_apply,
        **UPDATE,
    ),
    Hook(
        "GradientTape.gradient",
        (PYTHON + "eager.backprop:GradientTape.gradient",),
        before=functions.before_gradient,
        outside_fit=True,
    ),
    Hook(
        "func_graph_from_py_func",
        (PYTHON + "framework.func_graph:func_graph_from_py_func",),
        after=functions.after_trace,
        outside_fit=True,
    ),
    Hook(
        "func_graph_from_py_func, counts",
        (PYTHON + "framework.func_graph:func_graph_from_py_func",),
        before=counts.before_trace,
        always=counts.always_trace,
        after=counts.after_trace,
    ),
    *assigned(PYTHON + "ops.resource_variable_ops:BaseResourceVariable"),
    *assigned(PYTHON + "ops.resource_variable_ops:ResourceVariable"),
    *assigned(PYTHON + "distribute.values:DistributedVariable"),
)

CHECKPOINTS = (
    Hook(
        "Checkpoint._write",
        tuple(place + "_write" for place in CHECKPOINT),
        after=checkpoints.after_save,
        **SAVE,
    ),
    Hook(
        "Checkpoint.restore",
        tuple(place + "restore" for place in CHECKPOINT),
        after=checkpoints.after_restore,
        **RESTORE,
    ),
    Hook(
        "Checkpoint.read",
        tuple(place + "read" for place in CHECKPOINT),
        after=checkpoints.after_restore,
        **RESTORE,
    ),
    Hook(
        "save_weights", of_model("save_weights"), after=checkpoints.after_save_weights,
        optional=True, **SAVE,
    ),
    Hook(
        "load_weights", of_model("load_weights"), after=checkpoints.after_load_weights,
        optional=True, **RESTORE,
    ),
    Hook(
        "Model.save", of_model("save"), after=checkpoints.after_save_model,
        optional=True, **SAVE,
    ),
    Hook(
        "Model.export", of_model("export"), after=checkpoints.after_save_model,
        optional=True, **SAVE,
    ),
    Hook(
        "saved_model.save",
        (PYTHON + "saved_model.save:save",),
        after=checkpoints.after_export,
        **SAVE,
    ),
)  # fmt: skip

UPDATE_1: Dict[str, Any] = {
    "before": sessions.before_apply_gradients,
    "always": functions.always_update,
    "after": sessions.after_apply_gradients,
    "outside_fit": True,
    "in_fit": counts.mark,
}
SESSIONS = (
    Hook(
        "legacy Optimizer.apply_gradients",
        in_keras_2("optimizers.legacy.optimizer_v2", "OptimizerV2.apply_gradients")
        # Its place in TensorFlow 2.11.
        + in_keras_2("optimizers.optimizer_v2.optimizer_v2", "OptimizerV2.apply_gradients"),
        optional=True,
        **UPDATE_1,
    ),
    Hook(
        "v1 Optimizer.apply_gradients",
        (PYTHON + "training.optimizer:Optimizer.apply_gradients",),
        **UPDATE_1,
    ),
    Hook(
        "v1 SyncReplicasOptimizer.apply_gradients",
        (PYTHON + "training.sync_replicas_optimizer:SyncReplicasOptimizer.apply_gradients",),
        **UPDATE_1,
    ),
    Hook(
        "Session.run",
        (PYTHON + "client.session:BaseSession.run",),
        before=sessions.before_run,
        after=sessions.after_run,
        repeated=sessions.repeated_run,
    ),
    Hook(
        "Session.close", (PYTHON + "client.session:BaseSession.close",),
        before=sessions.before_close,
    ),
    Hook(
        "Saver.save", (PYTHON + "training.saver:Saver.save",), after=sessions.after_save, **SAVE,
    ),
    Hook(
        "Saver.restore", (PYTHON + "training.saver:Saver.restore",), after=sessions.after_restore,
        **RESTORE,
    ),
    Hook(
        "FileWriter.add_summary",
        (PYTHON + "summary.writer.writer:SummaryToEventTransformer.add_summary",),
        after=sessions.after_summary,
    ),
    Hook(
        "Estimator.evaluate",
        ("tensorflow_estimator.python.estimator.estimator:Estimator.evaluate",),
        after=sessions.after_evaluate,
        optional=True,
    ),
)  # fmt: skip

REPORTS = tuple(
    Hook(
        "training_reports.%s" % name,
        ("%s:%s" % (hooks.REPORTS, name),),
        after=after,
        repeated=repeated,
        optional=True,
    )
    for name, after, repeated in (
        ("step", reports.after_step, reports.repeated_step),
        ("epoch", reports.after_epoch, None),
        ("evaluated", reports.after_evaluated, None),
        ("preempted", reports.after_preempted, None),
    )
)

SUMMARIES = (
    Hook(
        "summary.scalar",
        ("tensorboard.plugins.scalar.summary_v2:scalar",),
        after=reports.after_scalar,
        optional=True,
        outside_fit=True,
    ),
)

HOOKS = (
    REPORTS + SUMMARIES + STRATEGIES + MESHES + COORDINATOR + FIT + LOOPS + CHECKPOINTS + SESSIONS
)
