from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from headrace.errors import EnvironmentFault
from headrace.storage import address
from headrace.storage.address import FILE_NAME, Address
from headrace.storage.lock import LakeLock


@pytest.fixture
def here() -> Address:
    return Address("http://127.0.0.1:8910", os.getpid(), "hs_secret")


def test_an_address_is_read_while_its_process_holds_the_lake(tmp_path: Path, here: Address) -> None:
    with LakeLock(tmp_path):
        address.write(tmp_path, here)
        assert address.read(tmp_path) == here
    assert address.read(tmp_path) is None  # The server was killed, and somebody else may listen on its port.


def test_an_address_of_another_process_than_the_holder_is_not_believed(tmp_path: Path, here: Address) -> None:
    with LakeLock(tmp_path):
        address.write(tmp_path, Address(here.url, here.pid + 1, here.token))
        assert address.read(tmp_path) is None
        address.remove(tmp_path)
        assert (tmp_path / FILE_NAME).exists()  # not ours


def test_only_the_owner_can_read_the_file_whatever_the_mask(tmp_path: Path, here: Address) -> None:
    before = os.umask(0)
    try:
        address.write(tmp_path, here)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]
    assert "hs_secret" not in repr(here)


def test_a_file_that_others_can_read_or_that_is_a_link_is_not_believed(tmp_path: Path, here: Address) -> None:
    with LakeLock(tmp_path):
        address.write(tmp_path, here)
        (tmp_path / FILE_NAME).chmod(0o644)
        assert address.read(tmp_path) is None
        (tmp_path / FILE_NAME).chmod(0o600)
        (tmp_path / FILE_NAME).rename(tmp_path / "elsewhere")
        (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere")
        assert address.read(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    ["", "[]", "null", "{", '{"url": 1, "pid": 1, "token": "t"}', '{"url": "u", "pid": "1", "token": "t"}', "\0" * 9],
)
def test_junk_is_no_address(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    (tmp_path / FILE_NAME).chmod(0o600)
    with LakeLock(tmp_path):
        assert address.read(tmp_path) is None


def test_writing_again_replaces_and_removing_removes(tmp_path: Path, here: Address) -> None:
    secure = Address("https://127.0.0.1:1", here.pid, "other", "/etc/cert.pem")
    with LakeLock(tmp_path):
        address.write(tmp_path, here)
        address.write(tmp_path, secure)
        assert address.read(tmp_path) == secure
        assert json.loads((tmp_path / FILE_NAME).read_text())["certificate"] == "/etc/cert.pem"
        address.remove(tmp_path)
        address.remove(tmp_path)
        assert address.read(tmp_path) is None
    assert address.read(tmp_path / "nowhere") is None


def test_a_folder_that_cannot_be_written(tmp_path: Path, here: Address) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        address.write(tmp_path / "file", here)
