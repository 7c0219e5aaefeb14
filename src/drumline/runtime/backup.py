"""A backup of a Keras 3 model after every epoch, from which all workers go on at the same one."""

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

_KEPT = 2  # the last, and the one before in case the last cannot be read


class Backup(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves weights and optimizer after every epoch, whole or not at all; restores the last when training begins.

    A file's name says how many epochs it has seen, so a backup is one file that appears at once. Every worker takes
    part in saving, since reading a model can be a collective, and only the chief's file is kept; everybody restores
    that one.
    """

    def __init__(self, folder: str, *, delete: bool) -> None:
        super().__init__()
        self._folder = Path(folder)
        self._delete = delete
        self._damaged: list[Path] = []

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Go on from the last backup, if there is one."""
        if not hasattr(self.model, "_initial_epoch"):
            raise StartError(f"Keras {keras.__version__} cannot be told where to go on: install keras==3.15.1")
        epochs = self._restore()
        seen = all_gather(self.model.distribute_strategy, [epochs])
        if len(set(map(tuple, seen))) > 1:
            counts = ", ".join(str(each) for (each,) in seen)
            raise StartError(
                f"not all workers see the same backup, but one after {counts} epochs: {self._folder} has to be a folder"
                " that they share"
            )
        self._put_aside()  # when everybody has looked
        if epochs:
            self.model._initial_epoch = epochs  # noqa: SLF001
            print(f"resumed after epoch {epochs}", flush=True)  # noqa: T201

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Save."""
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
        """Leave the backup for a run that goes on from it, or remove it."""
        if self._delete and is_chief():
            shutil.rmtree(self._folder, ignore_errors=True)

    def _restore(self) -> int:
        """Load the newest backup that can be read; return how many epochs it has seen, 0 if there is none."""
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
            _warn(f"no backup in {self._folder} can be read: this training begins anew")
        return 0

    def _put_aside(self) -> None:
        """Rename what could not be read, or it would be taken for newer than what comes now."""
        for path in self._damaged if is_chief() else ():
            with suppress(OSError):
                path.rename(path.with_name(f"damaged-{path.name}"))

    def _load(self, path: Path) -> None:
        if not self.model.built:
            raise StartError("a model that goes on from a backup has to be built before fit(): begin it with an Input")
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            with self.model.distribute_strategy.scope():
                optimizer.build(self.model.trainable_variables)  # or what was saved of it has no place to go
        self.model.load_weights(path)

    def _backups(self) -> list[Path]:
        return sorted(self._folder.glob("epoch-*.weights.h5"), reverse=True)


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)  # noqa: T201


def _sync(path: Path) -> None:
    """Have a file on the disk before its name says that it is whole."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
