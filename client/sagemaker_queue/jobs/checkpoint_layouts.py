"""Recognise the checkpoints of training libraries by the names and times of their files, without reading checkpoints.

The layouts are those of PyTorch Lightning, the Hugging Face Trainer, DeepSpeed, torch.distributed.checkpoint (FSDP) and
Orbax. A plain checkpoint is a file or folder with the word step, iter, epoch or checkpoint before a number. A number
without such a word may be the number of a process. So such a number is taken as a step only in the name of a temporary
folder of Orbax, or of a folder that contains marker files of Orbax or torch.distributed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from posixpath import basename, dirname

LIGHTNING = "Lightning"
TRAINER = "Hugging Face"
DEEPSPEED = "DeepSpeed"
DISTRIBUTED = "torch.distributed"
ORBAX = "Orbax"
PLAIN = "plain"

LATEST = "latest"  # DeepSpeed's file, whose content is the name of the folder from which a job resumes
SETTLED = timedelta(minutes=15)  # a checkpoint without a new file for this long counts as fully uploaded
ABANDONED = timedelta(hours=1)  # an incomplete checkpoint without a new file for this long counts as abandoned

_WORDS = r"(?:^|[-_.])(?:{})[-_=]?0*(\d{{1,18}})(?=[-_.]|$)"
_STEP = re.compile(_WORDS.format("(?:global[-_]?)?steps?|iter(?:ation)?|ckpt|checkpoint"), re.ASCII | re.IGNORECASE)
_EPOCH = re.compile(_WORDS.format("epochs?"), re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"0*(\d{1,18})", re.ASCII)
_TRAINER_FOLDER = re.compile(r"(?:tmp-)?checkpoint-(\d{1,18})", re.ASCII)
_DEEPSPEED_FOLDER = re.compile(r"global_step(\d{1,18})", re.ASCII)
_LAST = re.compile(r"last(?:-v\d+)?\.ckpt", re.ASCII)
_ORBAX_TEMPORARY = ".orbax-checkpoint-tmp"
_TEMPORARY_ENDS = (".tmp", ".new", ".part", ".partial", ".incomplete")
_BESIDE = (".csv", ".gif", ".html", ".jpeg", ".jpg", ".log", ".md", ".mp4", ".png", ".svg", ".txt", ".yaml", ".yml")
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\..*)", re.ASCII)
_RANK = re.compile(r"(?:bf16_)?zero_pp_rank_(\d+)_(mp_rank_\d+)_optim_states\.pt", re.ASCII)
_ORBAX_MARKS = frozenset(("_CHECKPOINT_METADATA", "commit_success.txt"))
_TRAINER_STATE = "trainer_state.json"
_TRAINER_MARKS = frozenset((_TRAINER_STATE, "training_args.bin", "optimizer.pt", "scheduler.pt"))
_TRAINER_SMALL = re.compile(
    r"(?:trainer_state|(?:generation_|adapter_)?config|tokenizer.*|special_tokens_map|vocab|.*\.index)\.json"
    r"|training_args\.bin|(?:optimizer|scheduler|scaler)\.pt|rng_state.*\.pth|.*\.(?:md|txt|py)|latest"
)
_MARKS = (".metadata", _TRAINER_STATE, *_ORBAX_MARKS)  # without these files, a folder is recognised as incomplete


@dataclass(frozen=True)
class CheckpointFile:
    """A file below a job's checkpoint folder."""

    path: str  # below the checkpoint folder
    size: int  # bytes
    modified: datetime  # the time at which it was written


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint: a file, several files, or a folder."""

    name: str  # path of its folder or of its first file
    layout: str  # the library that writes this layout, or plain
    step: int | None  # None: the name has no step, such as Lightning's last.ckpt
    files: tuple[CheckpointFile, ...]  # all of its files
    incomplete: str = ""  # the reason why a library would not load the checkpoint; empty: complete
    resumes: bool = False  # whether a library would load this checkpoint if the job started again

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def modified(self) -> datetime:
        """Time at which the last of its files was written."""
        return max(file.modified for file in self.files)

    @property
    def folder(self) -> str:
        """The folder that contains this checkpoint; empty: the job's checkpoint folder itself."""
        return dirname(self.name)


@dataclass(frozen=True)
class FoundCheckpoints:
    """The content of a checkpoint folder."""

    checkpoints: tuple[Checkpoint, ...]  # by folder, then by step, the lowest first
    others: tuple[CheckpointFile, ...] = ()  # files that belong to no recognised checkpoint

    def with_step(self, step: int) -> list[Checkpoint]:
        """Return the checkpoints of a step; there may be several, in several folders."""
        return [found for found in self.checkpoints if found.step == step]


def recognise(files: Iterable[CheckpointFile], texts: Mapping[str, str] | None = None) -> FoundCheckpoints:
    """Group the files below a checkpoint folder into checkpoints.

    ``texts`` has the content of files with the name ``latest``, by path. If the content is missing, a checkpoint of
    DeepSpeed counts as complete as soon as there is a file ``latest`` beside it.
    """
    known = list(files)
    groups: dict[tuple[str, int | None, bool], list[CheckpointFile]] = {}
    others = []
    marked = _folders_with_marks(known)
    for file in known:
        place = _place_of(file.path, marked)
        if place is None:
            others.append(file)
        else:
            groups.setdefault(place, []).append(file)
    found = [_checkpoint(place, members) for place, members in groups.items()]
    other_paths = {file.path for file in others}
    found = [_with_latest(one, other_paths, texts or {}) for one in found]
    resumes = _resumed(found, texts or {})
    found.sort(key=lambda one: (one.folder, one.step is None, one.step or 0, one.name))
    return FoundCheckpoints(tuple(replace(one, resumes=one.name in resumes) for one in found), tuple(others))


def latest_files(files: Iterable[CheckpointFile], largest: int = 200) -> list[CheckpointFile]:
    """Return files named ``latest`` of at most ``largest`` bytes; ``recognise`` takes their content as ``texts``."""
    return [file for file in files if basename(file.path) == LATEST and file.size <= largest]


def to_prune(found: FoundCheckpoints, keep: int, now: datetime) -> list[Checkpoint]:
    """Return the checkpoints to remove so that in each folder the complete ones with the ``keep`` highest steps stay.

    Every checkpoint from which some job may resume stays, whether a job is live or not:

    - the complete checkpoint with the highest step, and the complete one that was written last;
    - of the complete ones without a new file for SETTLED, the one with the highest step, because a checkpoint with a
      higher step may lack files that are still being uploaded; if there is none, the second highest;
    - a checkpoint without a step;
    - the checkpoint that DeepSpeed's ``latest`` names, because later steps count as incomplete.

    An incomplete checkpoint is removed if it has had no new file for ABANDONED, and a complete one was written later.
    """
    removed = []
    for folder in dict.fromkeys(one.folder for one in found.checkpoints):
        numbered = [one for one in found.checkpoints if one.folder == folder and one.step is not None]
        complete = sorted((one for one in numbered if not one.incomplete), key=_step_order, reverse=True)
        if not complete:
            continue
        last_written = max(complete, key=lambda one: one.modified)
        kept = {one.name for one in (*complete[: max(1, keep)], last_written)}
        settled = [one for one in complete if one.modified <= now - SETTLED] or complete[1:]
        kept |= {one.name for one in settled[:1]}
        removed += [one for one in numbered if not one.incomplete and one.name not in kept]
        removed += [
            one
            for one in numbered
            if one.incomplete
            and one.name not in kept
            and one.modified < last_written.modified
            and one.modified <= now - ABANDONED
        ]
    return removed


def in_order_of_removal(files: Iterable[CheckpointFile]) -> list[CheckpointFile]:
    """Sort files for removal: first the files without which a checkpoint counts as incomplete.

    So an interrupted removal leaves no checkpoint that seems complete.
    """
    return sorted(files, key=lambda file: not (basename(file.path) in _MARKS or "_model_states" in file.path))


def _step_order(one: Checkpoint) -> tuple[int, datetime]:
    return (one.step or 0, one.modified)


def _folders_with_marks(files: Iterable[CheckpointFile]) -> frozenset[str]:
    """Return the folders that contain, at any depth, a file that marks a checkpoint of Orbax or torch.distributed."""
    marked = set()
    for file in files:
        name, folder = basename(file.path), dirname(file.path)
        if name in _ORBAX_MARKS or name.endswith(".distcp") or name == ".metadata":
            while folder:
                marked.add(folder)
                folder = dirname(folder)
    return frozenset(marked)


def _place_of(path: str, marked: Collection[str]) -> tuple[str, int | None, bool] | None:
    """Return the checkpoint to which a file belongs; None if there is none.

    The tuple has a path, the step, and whether this path itself is the checkpoint. The last member is False for a file
    with the step in its own name: the path is then the file's folder.
    """
    parts = path.split("/")
    for depth, part in enumerate(parts[:-1], start=1):
        folder = "/".join(parts[:depth])
        if _LAST.fullmatch(part):
            return folder, None, True
        step = _step_of(part.partition(_ORBAX_TEMPORARY)[0].removesuffix(".ckpt"))
        if step is None and (folder in marked or _ORBAX_TEMPORARY in part):
            number = _NUMBER.fullmatch(part.partition(_ORBAX_TEMPORARY)[0])
            step = int(number[1]) if number else None
        if step is not None:
            return folder, step, True
    if _LAST.fullmatch(parts[-1]):
        return path, None, True
    stem, dot, end = parts[-1].rpartition(".")
    step = None if parts[-1].endswith(_BESIDE) or _SHARD.fullmatch(parts[-1]) else _step_of(stem if dot else end)
    return None if step is None else (dirname(path), step, False)


def _step_of(name: str) -> int | None:
    found = _STEP.search(name) or _EPOCH.search(name)
    return int(found[1]) if found else None


def _checkpoint(place: tuple[str, int | None, bool], files: list[CheckpointFile]) -> Checkpoint:
    folder, step, is_folder = place
    members = tuple(sorted(files, key=lambda file: file.path))
    if is_folder:
        inside = [file.path[len(folder) + 1 :] for file in members if file.path != folder]
        layout = _layout_of_folder(basename(folder), inside)
        return Checkpoint(folder, layout, step, members, _missing(basename(folder), layout, inside))
    finished = [file.path for file in members if not file.path.endswith(_TEMPORARY_ENDS)]
    layout = LIGHTNING if any(re.search(r"(?:step|epoch)=\d+.*\.ckpt$", path) for path in finished) else PLAIN
    name = (finished or [members[0].path])[0]
    return Checkpoint(name, layout, step, members, "" if finished else "its file is temporary")


def _layout_of_folder(name: str, inside: Collection[str]) -> str:
    names = {basename(path) for path in inside}
    if name.endswith(".ckpt"):
        return LIGHTNING
    if _ORBAX_TEMPORARY in name or names & _ORBAX_MARKS:
        return ORBAX
    if _TRAINER_FOLDER.fullmatch(name) and names & _TRAINER_MARKS:
        return TRAINER
    if _DEEPSPEED_FOLDER.fullmatch(name) or any(
        path.endswith(("_optim_states.pt", "_model_states.pt")) for path in names
    ):
        return DEEPSPEED
    if any(path.endswith(".distcp") for path in names) or ".metadata" in names:
        return DISTRIBUTED
    return PLAIN


def _missing(name: str, layout: str, inside: Collection[str]) -> str:
    """Return why a folder is not a complete checkpoint; empty if it is complete."""
    names = {basename(path) for path in inside}
    if _ORBAX_TEMPORARY in name or name.startswith("tmp-") or name.endswith(_TEMPORARY_ENDS):
        return "its folder is temporary"
    for folder in sorted({dirname(path) for path in inside if path.endswith(".distcp")}):
        if f"{folder}/.metadata".lstrip("/") not in inside:
            return ".metadata is missing"
    reason = ""
    if layout == ORBAX:
        commits = [path for path in inside if basename(path) == "commit_success.txt"]
        if commits and "commit_success.txt" not in commits:
            reason = "commit_success.txt is missing"
        elif not _ORBAX_MARKS & set(inside):
            reason = "_CHECKPOINT_METADATA is missing"
    elif layout == TRAINER:
        if _TRAINER_STATE not in inside:
            reason = f"{_TRAINER_STATE} is missing"
        elif all(_TRAINER_SMALL.fullmatch(one) for one in names):
            reason = "the weights are missing"
    elif layout == DEEPSPEED:
        reason = _missing_of_deepspeed(names)
    elif layout == DISTRIBUTED and not any(path.endswith(".distcp") for path in names):
        reason = "the files of all processes are missing"
    return reason or _missing_shard(inside)


def _missing_of_deepspeed(names: Collection[str]) -> str:
    if not any(one.endswith("_model_states.pt") for one in names):
        return "the model states are missing"
    ranks: dict[str, set[int]] = {}
    for found in filter(None, map(_RANK.fullmatch, names)):
        ranks.setdefault(found[2], set()).add(int(found[1]))
    gap = any(max(of_part) + 1 != len(of_part) for of_part in ranks.values())
    return "the optimizer states of some processes are missing" if gap else ""


def _missing_shard(inside: Collection[str]) -> str:
    shards: dict[tuple[str, str, str], int] = {}
    for found in filter(None, map(_SHARD.fullmatch, inside)):
        key = (found[1], found[3], found[4])
        shards[key] = shards.get(key, 0) + 1
    missing = next((key for key, count in shards.items() if count < int(key[1])), None)
    return f"some of the {int(missing[1])} files {basename(missing[0])}-... are missing" if missing else ""


def _with_latest(one: Checkpoint, other_paths: Collection[str], texts: Mapping[str, str]) -> Checkpoint:
    """Return the checkpoint; for DeepSpeed, mark it as incomplete if ``latest`` is missing or names an earlier step."""
    if one.layout != DEEPSPEED or one.incomplete or not _DEEPSPEED_FOLDER.fullmatch(basename(one.name)):
        return one
    path = f"{one.folder}/{LATEST}".lstrip("/")
    if path not in other_paths:
        return replace(one, incomplete=f"there is no file {LATEST} beside it")
    named = _DEEPSPEED_FOLDER.fullmatch(texts.get(path, "").strip())
    if named and one.step is not None and one.step > int(named[1]):
        return replace(one, incomplete=f"the file {LATEST} names an earlier step")
    return one


def _resumed(found: Collection[Checkpoint], texts: Mapping[str, str]) -> set[str]:
    """Return the names of the checkpoints from which libraries would resume, at most one for each folder."""
    resumed = set()
    for folder in {one.folder for one in found}:
        complete = [one for one in found if one.folder == folder and not one.incomplete]
        named = texts.get(f"{folder}/{LATEST}".lstrip("/"), "").strip()
        by_latest = [one for one in complete if one.layout == DEEPSPEED and basename(one.name) == named]
        numbered = sorted((one for one in complete if one.step is not None), key=_step_order)[-1:]
        last = sorted((one for one in complete if one.step is None), key=lambda one: one.modified)[-1:]
        if last and numbered and last[0].modified < numbered[0].modified:
            last = []
        resumed |= {one.name for one in (by_latest or last or numbered)[:1]}
    return resumed
