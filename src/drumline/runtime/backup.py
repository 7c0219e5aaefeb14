"""A backup of a Keras 3 model after every epoch, from which all workers continue at the same epoch."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras

from drumline.runtime import is_chief, write_dir
from drumline.runtime.all_gather import all_gather
from drumline.runtime.start_error import StartError

_KEPT = 2  # the last backup, and the one before, in case the last cannot be read


class Backup(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves weights and optimizer atomically after every epoch; restores the last backup when training begins.

    The name of the file has the number of epochs. Every worker takes part in saving, since reading a model can be a
    collective operation; only the chief's file is kept, and all workers restore it.
    """

    def __init__(self, folder: str, *, delete: bool) -> None:
        super().__init__()
        self._folder = Path(folder)
        self._delete = delete
        self._damaged: list[Path] = []

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Restore the last backup, if there is one."""
        if not hasattr(self.model, "_initial_epoch"):
            raise StartError(f"Keras {keras.__version__} cannot continue from an epoch: install keras==3.15.1")
        epochs = self._restore()
        seen = all_gather(self.model.distribute_strategy, [epochs])
        if len(set(map(tuple, seen))) > 1:
            counts = ", ".join(str(each) for (each,) in seen)
            raise StartError(
                f"not all workers see the same backup, but one after {counts} epochs: {self._folder} has to be a folder"
                " that they share"
            )
        self._rename_damaged()  # after all workers have read
        if epochs:
            self.model._initial_epoch = epochs  # noqa: SLF001
            print(f"resumed after epoch {epochs}", flush=True)  # noqa: T201

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Save a backup, and remove old ones."""
        folder = write_dir(self._folder)
        partial = folder / "partial.weights.h5"
        self.model.save_weights(partial, overwrite=True)
        if is_chief():
            _sync(partial)
            partial.replace(folder / f"epoch-{epoch + 1:06}.weights.h5")
            for old in self._backups()[_KEPT:]:
                old.unlink(missing_ok=True)
        else:
            partial.unlink()

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """Keep the backup for a later run, or remove it."""
        if self._delete and is_chief():
            shutil.rmtree(self._folder, ignore_errors=True)

    def _restore(self) -> int:
        """Load the newest readable backup; return its number of epochs, 0 if there is none."""
        backups = self._backups()
        for path in backups:
            try:
                self._load(path)
            except OSError as error:
                if isinstance(error, PermissionError):
                    raise StartError(f"{path} cannot be read: {error.strerror}") from None
                _warn(f"{path} cannot be read: {error}")
            else:
                return int(path.name.removeprefix("epoch-").partition(".")[0])
        self._damaged = backups
        if backups:
            _warn(f"no backup in {self._folder} can be read: the training starts from the beginning")
        return 0

    def _rename_damaged(self) -> None:
        """Rename unreadable backups, so that they do not count as newer than the next ones."""
        for path in self._damaged if is_chief() else ():
            with suppress(OSError):
                path.rename(path.with_name(f"damaged-{path.name}"))

    def _load(self, path: Path) -> None:
        if not self.model.built:
            raise StartError("a model must be built before fit() to continue from a backup: begin it with an Input")
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            with self.model.distribute_strategy.scope():
                optimizer.build(self.model.trainable_variables)  # so that its saved state can be loaded
        self.model.load_weights(path)

    def _backups(self) -> list[Path]:
        return sorted(self._folder.glob("epoch-*.weights.h5"), reverse=True)


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)  # noqa: T201


def _sync(path: Path) -> None:
    """Write a file to the disk before it is renamed."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
