"""The layouts of checkpoints: real lists of files from each library, and what is missing in damaged ones."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from sagemaker_queue.jobs.checkpoint_layouts import (
    ABANDONED,
    DEEPSPEED,
    DISTRIBUTED,
    LIGHTNING,
    ORBAX,
    PLAIN,
    SETTLED,
    TRAINER,
    CheckpointFile,
    FoundCheckpoints,
    in_order_of_removal,
    latest_files,
    recognise,
    to_prune,
)

# Made by the libraries themselves: tools/checkpoint_layouts.py.
REAL: dict[str, Any] = json.loads(Path(__file__).with_name("checkpoint_layouts.json").read_text())
BEGIN = datetime(2026, 11, 27, tzinfo=timezone.utc)
LATER = BEGIN + timedelta(days=1)


def real(name: str, *, without: str | None = None, below: str = "") -> FoundCheckpoints:
    """Return the checkpoints of a library; each hour of the list stands for a hundredth of a second."""
    files = [
        CheckpointFile(f"{below}{path}", size, BEGIN + timedelta(seconds=at))
        for path, size, at in REAL[name]["files"]
        if path != without
    ]
    return recognise(files, {f"{below}{path}": text for path, text in REAL[name]["texts"].items()})


def listed(*paths: str, texts: dict[str, str] | None = None) -> FoundCheckpoints:
    """Return the checkpoints of files that were written one minute after the other."""
    files = [CheckpointFile(path, 10, BEGIN + timedelta(minutes=at)) for at, path in enumerate(paths)]
    return recognise(files, texts)


def steps(found: FoundCheckpoints) -> list[tuple[object, ...]]:
    return [(one.step, one.layout, bool(one.incomplete), one.resumes) for one in found.checkpoints]


@pytest.mark.parametrize("below", ["", "run-1/deep/"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lightning", [(2, LIGHTNING), (4, LIGHTNING), (6, LIGHTNING), (None, LIGHTNING)]),
        ("lightning-fsdp", [(2, LIGHTNING), (4, LIGHTNING)]),
        ("transformers", [(2, TRAINER), (4, TRAINER), (6, TRAINER)]),
        ("deepspeed", [(2, DEEPSPEED), (4, DEEPSPEED), (6, DEEPSPEED)]),
        ("torch-distributed", [(2, DISTRIBUTED), (4, DISTRIBUTED), (6, DISTRIBUTED)]),
        ("orbax", [(2, ORBAX), (4, ORBAX), (6, ORBAX)]),
        ("plain", [(2, PLAIN), (4, PLAIN), (6, PLAIN)]),
    ],
)
def test_checkpoints_of_the_libraries_are_recognised(name: str, expected: list[object], below: str) -> None:
    found = real(name, below=below)
    assert [(one.step, one.layout) for one in found.checkpoints] == expected
    assert not any(one.incomplete for one in found.checkpoints)
    assert [one.resumes for one in found.checkpoints] == [False] * (len(expected) - 1) + [True]
    files = sum(len(one.files) for one in found.checkpoints) + len(found.others)
    assert files == len(REAL[name]["files"])


def test_a_temporary_folder_of_orbax_is_incomplete() -> None:
    assert steps(real("orbax-interrupted")) == [(2, ORBAX, False, True), (4, ORBAX, True, False)]


@pytest.mark.parametrize(
    ("name", "without", "step", "reason"),
    [
        ("transformers", "checkpoint-6/trainer_state.json", 6, "trainer_state.json is missing"),
        ("transformers", "checkpoint-6/model.safetensors", 6, "the weights are missing"),
        ("lightning-fsdp", "epoch=0-step=4.ckpt/.metadata", 4, ".metadata is missing"),
        ("torch-distributed", "step-6/.metadata", 6, ".metadata is missing"),
        ("orbax", "6/commit_success.txt", 6, "commit_success.txt is missing"),
        ("deepspeed", "global_step6/mp_rank_00_model_states.pt", 6, "the model states are missing"),
        ("deepspeed", "latest", 6, "there is no file latest beside it"),
    ],
)
def test_a_checkpoint_without_a_file_is_incomplete(name: str, without: str, step: int, reason: str) -> None:
    found = real(name, without=without)
    (one,) = found.with_step(step)
    assert (one.incomplete, one.resumes) == (reason, False)
    assert sum(other.resumes for other in found.checkpoints) == (0 if without == "latest" else 1)


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        (["checkpoint-5/trainer_state.json", "checkpoint-5/model-00001-of-00002.safetensors"], "some of the 2 files"),
        (["step-5/.metadata"], "the files of all processes are missing"),
        (["tmp-checkpoint-5/trainer_state.json"], "its folder is temporary"),
        (["step-5.pt.new"], "its file is temporary"),
        (["5/commit_success.txt.new", "5/default/commit_success.txt"], "commit_success.txt is missing"),
        (["5/default/_CHECKPOINT_METADATA"], "_CHECKPOINT_METADATA is missing"),
        (["5.orbax-checkpoint-tmp-1700000000/default/x"], "its folder is temporary"),
        (
            [
                "latest",
                *(f"global_step5/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 2)),
                "global_step5/mp_rank_00_model_states.pt",
            ],
            "the optimizer states of some processes are missing",
        ),
    ],
)
def test_what_is_missing(paths: list[str], reason: str) -> None:
    (one,) = listed(*paths).checkpoints
    assert one.step == 5 and one.incomplete.startswith(reason)


def test_deepspeed_resumes_from_the_step_that_latest_names() -> None:
    paths = [f"run/global_step{step}/mp_rank_00_model_states.pt" for step in (1, 2, 3)]
    found = listed(*paths, "run/latest", texts={"run/latest": "global_step2\n"})
    expected = [(1, DEEPSPEED, False, False), (2, DEEPSPEED, False, True), (3, DEEPSPEED, True, False)]
    assert steps(found) == expected
    assert [file.path for file in latest_files(found.others)] == ["run/latest"]


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("step-500.pt", 500),
        ("step_0500.safetensors", 500),
        ("run.iter500.pth", 500),
        ("ckpt-500.index", 500),
        ("epoch-3-step-500.pt", 500),
        ("epoch=3.ckpt", 3),
        ("model_epoch_3.h5", 3),
        ("checkpoint_7/custom.bin", 7),
        ("step-5-stage-0.pt", 5),
        ("model_0.pt", None),  # may be the number of a process
        ("0/model.pt", None),
        ("rank-3.pt", None),
        ("2026/11/log.json", None),
        ("progress.json", None),
        ("epoch-3.png", None),
        ("step-5.log", None),
        ("stepped-500.pt", None),
        ("model-00001-of-00002.safetensors", None),
        ("step-" + "9" * 4000 + ".pt", None),
        ("step-\u0665.pt", None),  # a digit of another script
    ],
)
def test_numbers_in_names(path: str, step: int | None) -> None:
    found = listed(path)
    assert [one.step for one in found.checkpoints] == ([] if step is None else [step])
    assert len(found.others) == (step is None)


def test_files_of_one_step_are_one_checkpoint() -> None:
    found = listed("step-5-stage-0.pt", "step-5-stage-1.pt", "step-10-stage-0.pt", "step-5-stage-1.pt.new")
    assert [(one.step, len(one.files)) for one in found.checkpoints] == [(5, 3), (10, 1)]
    assert not any(one.incomplete for one in found.checkpoints)


def test_an_old_last_checkpoint_is_not_the_one_to_resume_from() -> None:
    found = listed("last.ckpt", "epoch=0-step=2.ckpt")
    assert steps(found) == [(2, LIGHTNING, False, True), (None, LIGHTNING, False, False)]
    found = listed("epoch=0-step=2.ckpt", "last.ckpt")
    assert steps(found) == [(2, LIGHTNING, False, False), (None, LIGHTNING, False, True)]


def pruned(found: FoundCheckpoints, keep: int, now: datetime = LATER) -> list[str]:
    return [one.name for one in to_prune(found, keep, now)]


def test_the_newest_of_each_folder_stay() -> None:
    found = listed(*(f"{run}/step-{step}.pt" for run in "ab" for step in (5, 10, 15)), "a/progress.json")
    assert pruned(found, 1) == ["a/step-5.pt", "a/step-10.pt", "b/step-5.pt", "b/step-10.pt"]
    assert pruned(found, 2) == ["a/step-5.pt", "b/step-5.pt"]
    assert pruned(found, 3) == []


@pytest.mark.parametrize("name", list(REAL))
@pytest.mark.parametrize("keep", [0, 1, 2])
def test_what_a_job_resumes_from_stays(name: str, keep: int) -> None:
    found = real(name)
    removed = to_prune(found, keep, LATER)
    assert not any(one.resumes or one.step is None for one in removed)
    complete = [one for one in found.checkpoints if one.step is not None and not one.incomplete]
    assert len([one for one in removed if not one.incomplete]) == max(0, len(complete) - max(1, keep))
    left = [file for one in found.checkpoints if one not in removed for file in one.files]
    again = recognise([*left, *found.others], REAL[name]["texts"])
    assert {one.name for one in again.checkpoints if one.resumes} == {
        one.name for one in found.checkpoints if one.resumes
    }


def test_a_checkpoint_that_may_still_be_uploaded_is_not_relied_on() -> None:
    found = listed("step-5.pt", "step-10.pt", "step-15.pt")  # written in the minutes 0, 1 and 2
    assert pruned(found, 1, BEGIN + timedelta(minutes=2)) == ["step-5.pt"]
    assert pruned(found, 1, BEGIN + timedelta(minutes=1) + SETTLED) == ["step-5.pt"]
    assert pruned(found, 1, BEGIN + timedelta(minutes=2) + SETTLED) == ["step-5.pt", "step-10.pt"]


def test_a_job_that_went_back_keeps_what_it_wrote_last() -> None:
    assert pruned(listed("step-5.pt", "step-20.pt", "step-10.pt"), 1) == ["step-5.pt"]


def test_incomplete_checkpoints_go_once_they_are_old() -> None:
    paths = ["step-5/__0_0.distcp", "step-10/__0_0.distcp", "step-10/.metadata", "step-15/__0_0.distcp"]
    found = listed(*paths)
    assert pruned(found, 1, BEGIN + timedelta(minutes=30)) == []
    assert pruned(found, 1, BEGIN + ABANDONED) == ["step-5"]
    assert pruned(found, 1) == ["step-5"]  # step-15 may become complete


def test_the_step_that_latest_names_stays_and_later_ones_as_well() -> None:
    paths = [f"global_step{step}/mp_rank_00_model_states.pt" for step in (1, 2, 3)]
    assert pruned(listed(*paths, "latest", texts={"latest": "global_step2"}), 1) == ["global_step1"]


def test_nothing_goes_without_a_complete_checkpoint() -> None:
    assert pruned(listed("step-5/__0_0.distcp", "step-10/__0_0.distcp"), 1) == []


@pytest.mark.parametrize("name", ["transformers", "deepspeed", "torch-distributed", "orbax"])
def test_a_removal_that_is_interrupted_leaves_no_checkpoint_that_seems_complete(name: str) -> None:
    first = real(name).checkpoints[0]
    texts = REAL[name]["texts"]
    beside = [CheckpointFile(path, 10, BEGIN) for path in texts]
    marks = {"transformers": 1, "deepspeed": 1, "torch-distributed": 1, "orbax": 3}[name]
    for removed in range(marks, len(first.files)):
        left = in_order_of_removal(first.files)[removed:]
        found = recognise([*left, *beside], texts)
        assert all(one.incomplete for one in found.checkpoints), [file.path for file in left]
