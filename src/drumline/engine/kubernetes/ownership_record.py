"""The file in a run's folder that identifies the objects that the run has created in the cluster.

Every user of a namespace can write names, labels and owner references, and can create an object before drumline does.
So each object of a run has a mark: a digest of its kind and name with a key that is only in the run's folder. The uids
of the owner, of controllers and of pods are recorded as well. So they are known after a deletion, and a pod of another
user that a Job adopts does not count as a pod of the run.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.answer_fields import mapping
from drumline.engine.kubernetes.paths import Object
from drumline.errors import EngineError
from drumline.words import describe_os_error

RECORD = "cluster"  # the file in the run's folder
MARK = f"{names.PREFIX}/mark"
_LONGEST_BYTES = 16 << 20


class OwnershipRecord:
    """The key and the uids of one run; one JSON object per line."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RECORD
        self.reload()

    def reload(self) -> None:
        """Read the file, which an earlier supervisor may have written."""
        self.key = ""  # empty: the objects are of a version without marks
        self.owner_uid = ""
        self.controllers: dict[str, tuple[str, str]] = {}  # uid: kind and name
        self.pods: dict[str, str] = {}  # by incarnation
        self.is_new = True  # there is no file
        self._read()

    def renew(self) -> None:
        """Make a key for a new owner; objects with marks of an earlier key are no longer the run's.

        A key without a known owner stays: a killed supervisor may have created its owner.
        """
        if self.key and not self.owner_uid:
            return
        beside = self._path.with_name(f"{RECORD}.new")
        try:
            _write(beside, json.dumps({"key": secrets.token_hex(32)}).encode() + b"\n", os.O_TRUNC)
            if self.is_new:
                with suppress(FileExistsError):  # another supervisor was faster
                    self._path.hardlink_to(beside)
                beside.unlink()
            else:
                beside.replace(self._path)
        except OSError as error:
            raise EngineError(f"the run's folder cannot be written: {describe_os_error(error)}") from None
        self.reload()

    def add_owner(self, uid: str) -> None:
        """Record the uid of the owner."""
        if uid != self.owner_uid:
            self.owner_uid = uid
            self._add({"owner": uid})

    def add_controller(self, uid: str, kind: str, name: str) -> None:
        """Record the uid of a controller of pods."""
        if uid not in self.controllers:
            self.controllers[uid] = kind, name
            self._add({"maker": uid, "kind": kind, "name": name})

    def add_pod(self, incarnation: str, uid: str) -> None:
        """Record the uid of the pod of an incarnation."""
        self.pods[incarnation] = uid
        self._add({"pod": uid, "life": incarnation})

    def mark(self, an_object: Object) -> Object:
        """Return a copy of an object with its mark; the same object if the run has no key."""
        if not self.key:
            return an_object
        metadata = an_object["metadata"]
        annotations = {**(metadata.get("annotations") or {}), MARK: self._mark_of(an_object)}
        return {**an_object, "metadata": {**metadata, "annotations": annotations}}

    def has_mark(self, an_object: Mapping[str, Any]) -> bool:
        """Return whether an object has the run's mark; the object must have a `kind`."""
        found = mapping(mapping(an_object.get("metadata")).get("annotations")).get(MARK)
        return bool(self.key) and isinstance(found, str) and found == self._mark_of(an_object)

    def _mark_of(self, an_object: Mapping[str, Any]) -> str:
        what = f"{an_object.get('kind')}/{mapping(an_object.get('metadata')).get('name')}"
        return hmac.digest(self.key.encode(), what.encode("utf-8", "surrogatepass"), "sha256").hex()

    def _read(self) -> None:
        try:
            with self._path.open("rb") as file:
                lines = file.read(_LONGEST_BYTES).split(b"\n")[:-1]
        except FileNotFoundError:
            return
        except OSError as error:
            raise EngineError(f"the run's folder cannot be read: {describe_os_error(error)}") from None
        self.is_new = False
        for line in lines:
            try:
                known = mapping(json.loads(line))
            except ValueError:  # an incomplete line
                continue
            self.key = str(known.get("key", self.key))
            self.owner_uid = str(known.get("owner", self.owner_uid))
            if "maker" in known:
                self.controllers[str(known["maker"])] = str(known.get("kind")), str(known.get("name"))
            if "pod" in known:
                self.pods[str(known.get("life"))] = str(known["pod"])

    def _add(self, data: Object) -> None:
        try:
            _write(self._path, json.dumps(data).encode() + b"\n", os.O_APPEND)
        except OSError as error:
            raise EngineError(f"the run's folder cannot be written: {describe_os_error(error)}") from None
        self.is_new = False


def _write(path: Path, data: bytes, flag: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | flag, 0o600)
    try:
        while data:
            data = data[os.write(file, data) :]
    finally:
        os.close(file)
