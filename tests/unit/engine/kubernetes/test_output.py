"""What a pod sends is unpacked nowhere but where it was asked for."""

from __future__ import annotations

import tarfile

import pytest

from drumline.engine.kubernetes.output import _inside


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, target
    return found


def test_files_folders_and_links_within_are_taken() -> None:
    sent = [
        member("./output", tarfile.DIRTYPE),
        member("./output/model"),
        member("./output/..."),
        member("./output/latest", tarfile.SYMTYPE, "../output/model"),
        member("./output/again", tarfile.LNKTYPE, "./output/model"),
    ]
    assert list(_inside(sent)) == sent


@pytest.mark.parametrize(
    "sent",
    [
        member("/etc/passwd"),
        member("../model"),
        member("./output/../../model"),
        member("./output/latest", tarfile.SYMTYPE, "../../model"),
        member("./output/latest", tarfile.SYMTYPE, "/etc"),
        member("./output/again", tarfile.LNKTYPE, "../model"),
        member("./output/null", tarfile.CHRTYPE),
        member("./output/pipe", tarfile.FIFOTYPE),
    ],
)
def test_what_would_lie_elsewhere_or_is_no_file_is_refused(sent: tarfile.TarInfo) -> None:
    with pytest.raises(tarfile.TarError):
        list(_inside([sent]))
