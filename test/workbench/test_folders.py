"""Files that commands write are whole or missing."""

import json
import os

import pytest
import torch

from torch_dtypes.workbench.report.folders import (
    save_tensors,
    whole_file,
    write_csv,
    write_json,
    write_text,
)

WRITERS = {
    "text": lambda path: write_text(path, "new\n"),
    "json": lambda path: write_json(path, {"new": 1}),
    "csv": lambda path: write_csv(path, ["name", "kind", "count"], [["a", "b", "1,000"]]),
    "tensors": lambda path: save_tensors({"new": torch.ones(2, device="cpu")}, path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_is_replaced_as_a_whole(name, tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    WRITERS[name](path)
    assert path.read_bytes() != b"old" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("name", WRITERS)
def test_of_a_file_that_cannot_be_written_nothing_is_left(name, tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    (tmp_path / "file.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        WRITERS[name](path)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_what_a_block_raises_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as file:
        file.write("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, [float("nan")])
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_links_are_followed_and_pipes_written_to(tmp_path):
    there, link, pipe = tmp_path / "there", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(there)
    write_json(link, [1])
    assert link.is_symlink() and json.loads(there.read_text()) == [1]
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "through")
        assert os.read(reader, 100) == b"through" and not pipe.is_file()
    finally:
        os.close(reader)
    assert (
        write_csv(tmp_path / "t.csv", ["name", "kind", "count"], [["a", "b", "1,000"]]).read_text()
        == "name,kind,count\na,b,1000\n"
    )
