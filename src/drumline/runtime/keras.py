"""Keras on several workers: a patch for `model.fit` of Keras 3, and a backup from which all workers continue.

Keras 3 stops with an error in `fit`, `evaluate` and `predict` under several workers (keras-team/keras#20585): it
averages the input batches over the replicas, which no collective does, and it averages single numbers along an axis
that they do not have. For known versions of Keras, `strategy()` replaces the two functions.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import sys
from typing import Any

from drumline.runtime import checkpoint_dir
from drumline.runtime.start_error import StartError

# The hash of the two functions in Keras 3.11 to 3.15, with which the patch was tested.
_KNOWN = "37e34fef0c24cc5dfe500dd5dc6f1d72"
_TESTED = "keras==3.15.1"
_LEGACY = "tf-keras, with `pip install --no-deps tf-keras` and TF_USE_LEGACY_KERAS=1 in `env`"


def backup(path: str | os.PathLike[str] | None = None, *, delete: bool = False, keras: Any = None) -> Any:
    """Return a callback that saves after every epoch and continues from there after a restart.

    All workers use the same shared folder, by default the checkpoint folder; only the chief's backup is kept. It stays
    after the training unless `delete` is True. `keras` is the module with which the model is made; only scripts that
    import `tf_keras` by this name need to pass it.
    """
    folder = os.fspath(path or checkpoint_dir())
    name = keras.__name__ if keras else "tf_keras" if _is_legacy() else "keras"
    if name == "tf_keras":
        import tf_keras

        return _reporting_damage(tf_keras)(folder, delete_checkpoint=delete)
    from drumline.runtime.backup import Backup

    return Backup(folder, delete=delete)


def _reporting_damage(tf_keras: Any) -> Any:
    """Return tf-keras's callback, extended to report a damaged backup with a message."""
    import tensorflow as tf

    damaged = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.OutOfRangeError, IndexError)

    class Backup(tf_keras.callbacks.BackupAndRestore):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            try:
                super().on_train_begin(logs)
            except damaged as error:
                reason = str(error).partition("\n")[0]
                raise StartError(
                    f"the backup in {self.backup_dir} cannot be read: {reason}; remove it to start from the beginning"
                ) from None

    return Backup


def patch_fit() -> None:
    """Make `fit`, `evaluate` and `predict` of Keras 3 work on several workers, or raise StartError when called.

    They raise it if the patch was not tested with this version of Keras.

    Idempotent. Models of a single process, and of other strategies, are not changed.
    """
    trainer = _trainer()
    model = trainer.TensorFlowTrainer
    if getattr(trainer, "patched_by_drumline", False):
        return
    trainer.patched_by_drumline = True
    build, reduce = model._maybe_symbolic_build, trainer.reduce_per_replica  # noqa: SLF001
    known = _fingerprint(build, reduce) == _KNOWN
    spans_workers = trainer._collective_all_reduce_multi_worker  # noqa: SLF001

    @functools.wraps(build)
    def build_from_own_batch(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        if self._distribute_strategy is None or not spans_workers(self.distribute_strategy):
            build(self, iterator, data_batch)
            return
        if not known:
            raise StartError(_unknown())
        if self.steps_per_execution > 1:
            raise StartError(
                f"steps_per_execution={self.steps_per_execution} does not work in Keras 3 on several workers: leave it"
                f" at 1, or use {_LEGACY}"
            )
        if iterator is not None:
            data_batch = _one_replicas_batch(trainer, iterator)
            _warn_of_empty_batches(trainer, self, data_batch)
        with self.distribute_strategy.scope():
            self._symbolic_build(data_batch=data_batch)

    @functools.wraps(reduce)
    def reduce_over_workers(values: Any, strategy: Any, reduction: str) -> Any:
        if not spans_workers(strategy) or reduction not in ("auto", "mean", "sum"):
            return reduce(values, strategy, reduction)
        how = "SUM" if reduction == "sum" else "MEAN"
        return trainer.tree.map_structure(lambda value: strategy.reduce(how, value, axis=None), values)

    model._maybe_symbolic_build = build_from_own_batch  # noqa: SLF001
    trainer.reduce_per_replica = reduce_over_workers
    model.fit = _refusing_few_files(model.fit)


def refuse_fit() -> None:
    """Make `fit` of Keras 3 raise StartError with parameter servers, with which it does not work."""
    model = _trainer().TensorFlowTrainer
    model.fit = _refusing(model.fit)


def _fingerprint(*functions: Any) -> str:
    """Return a hash of the source of functions."""
    return hashlib.sha256("".join(map(inspect.getsource, functions)).encode()).hexdigest()[:32]


def _one_replicas_batch(trainer: Any, iterator: Any) -> Any:
    """Return the shapes and types of one replica's batch, as the data declares them.

    Reading a batch instead would restart the data and shuffle it again.
    """
    declared = iterator._get_iterator().element_spec  # noqa: SLF001
    of_first = trainer.tree.map_structure(lambda spec: getattr(spec, "_value_specs", (spec,))[0], declared)
    return trainer.tree.map_structure(lambda spec: spec if hasattr(spec, "shape") else None, of_first)


def _warn_of_empty_batches(trainer: Any, model: Any, batch: Any) -> None:
    """Warn once that a worker without rows makes a model with batch normalization NaN."""
    layers = (type(layer).__name__ for layer in model._flatten_layers())  # noqa: SLF001
    uneven = any(spec.shape.rank and spec.shape[0] is None for spec in trainer.tree.flatten(batch) if spec is not None)
    if uneven and "BatchNormalization" in layers and not getattr(trainer, "warned_by_drumline", False):
        trainer.warned_by_drumline = True
        print(  # noqa: T201
            "warning: if the last batch has fewer rows than there are replicas, BatchNormalization of Keras 3 makes the"
            " model NaN: batch(..., drop_remainder=True) leaves that batch out",
            file=sys.stderr,
        )


def _refusing_few_files(fit: Any) -> Any:
    import tensorflow as tf

    @functools.wraps(fit)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return fit(self, *args, **kwargs)
        except tf.errors.InvalidArgumentError as error:
            if "Could not apply FILE based sharding" not in error.message:
                raise
        raise StartError(
            "the data has fewer files than there are workers, and each would read its own: write more files, or let"
            " every worker read all of them and take a share of the rows, with tf.data.Options() in which"
            " experimental_distribute.auto_shard_policy is tf.data.experimental.AutoShardPolicy.DATA"
        )

    return guarded


def _refusing(fit: Any) -> Any:
    import tensorflow as tf

    @functools.wraps(fit)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self.distribute_strategy, tf.distribute.ParameterServerStrategy):
            raise StartError(
                "model.fit of Keras 3 does not work with parameter servers: write the loop yourself with a"
                f" ClusterCoordinator, or use {_LEGACY}"
            )
        return fit(self, *args, **kwargs)

    return guarded


def _trainer() -> Any:
    from keras.src.backend.tensorflow import trainer

    return trainer


def _is_legacy() -> bool:
    return os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")


def _unknown() -> str:
    return (
        f"model.fit of Keras {sys.modules['keras'].__version__} on several workers was never tested with drumline:"
        f" install {_TESTED}, or use {_LEGACY}; if this Keras works without the patch, use strategy(patch_keras=False)"
    )
