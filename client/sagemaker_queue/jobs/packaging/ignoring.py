"""Choose the files that are packed as a job's code: exclude files by .gitignore and .smqignore, and secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from sagemaker_queue.errors import FolderError
from sagemaker_queue.jobs.packaging.secret_files import SecretFiles

IGNORE_FILES = (".gitignore", ".smqignore")  # the second overrides the first
ALWAYS_IGNORED = frozenset({".git", "__pycache__"})


@dataclass(frozen=True)
class _Rules:
    """The rules in the ignore files of one folder."""

    folder: Path
    spec: GitIgnoreSpec
    smqignore: GitIgnoreSpec  # the rules of .smqignore only

    @classmethod
    def of(cls, folder: Path) -> _Rules:
        lines: dict[str, list[str]] = {name: [] for name in IGNORE_FILES}
        for name in IGNORE_FILES:
            if (folder / name).is_file():
                text = (folder / name).read_text(encoding="utf-8", errors="replace")
                lines[name] = list(filter(_is_pattern, text.splitlines()))
        every = map(_git_meaning, sum(lines.values(), []))
        return cls(folder, GitIgnoreSpec.from_lines(every), GitIgnoreSpec.from_lines(lines[IGNORE_FILES[-1]]))

    def ignores(self, path: Path, *, is_folder: bool) -> bool | None:
        """Return whether the rules exclude the path; None if no rule matches the path."""
        relative = path.relative_to(self.folder).as_posix()
        return self.spec.check_file(f"{relative}/" if is_folder else relative).include

    def allows(self, path: Path, *, is_folder: bool) -> bool:
        """Return whether a pattern with ! in .smqignore matches the path."""
        relative = path.relative_to(self.folder).as_posix()
        return self.smqignore.check_file(f"{relative}/" if is_folder else relative).include is False


@dataclass(frozen=True)
class _Walk:
    root: Path
    left_out: frozenset[Path]
    secrets: SecretFiles
    kept_back: list[str]

    def keeps_back(self, path: Path, rules: Sequence[_Rules], *, is_folder: bool) -> bool:
        """Return whether the path contains secrets that .smqignore does not allow, and record such a path."""
        relative = path.relative_to(self.root).as_posix()
        if not self.secrets.has(path, relative, is_folder=is_folder) or _allowed(path, rules, is_folder=is_folder):
            return False
        self.kept_back.append(f"{relative}/" if is_folder else relative)
        return True


def code_files(
    folder: Path,
    leave_out: Sequence[str] = (),
    *,
    include_secrets: Sequence[str] = (),
    kept_back: list[str] | None = None,
) -> Iterator[Path]:
    """Yield the files, links and folders below a folder that are its code, sorted by name in each folder.

    ``leave_out`` are further paths to exclude. .git, __pycache__ and virtual environments are always excluded. Files
    that contain secrets are excluded and added to ``kept_back``, unless a pattern of ``include_secrets`` or a pattern
    with ! in .smqignore names them. Raises FolderError if a part of the folder cannot be read.
    """
    root = folder.resolve()
    walk = _Walk(
        root,
        frozenset(root / path for path in leave_out),
        SecretFiles(include_secrets),
        [] if kept_back is None else kept_back,
    )
    try:
        above = [_Rules.of(parent) for parent in _parents_in_repository(root)]
        yield from _walk(root, above, walk)
    except OSError as error:
        raise FolderError(f"{error.filename} cannot be read: {error.strerror}.") from error


def _walk(folder: Path, above: Sequence[_Rules], walk: _Walk) -> Iterator[Path]:
    rules = [*above, _Rules.of(folder)]
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path, is_folder = Path(entry.path), entry.is_dir(follow_symlinks=False)
        if entry.name in ALWAYS_IGNORED or path in walk.left_out or _ignored(path, rules, is_folder=is_folder):
            continue
        is_code = is_folder or entry.is_symlink() or entry.is_file()  # not a socket or a pipe
        if not is_code or walk.keeps_back(path, rules, is_folder=is_folder):
            continue
        if is_folder:
            if not (path / "pyvenv.cfg").is_file():
                yield path
                yield from _walk(path, rules, walk)
        else:
            yield path


def _is_pattern(line: str) -> bool:
    """Return whether a line is a pattern for pathspec. Git ignores other lines: ! alone, and a backslash at the end."""
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _git_meaning(line: str) -> str:
    """Return a pattern for pathspec that has the meaning of the line in git.

    For git, out/** matches the content of the folder but not the folder itself. For pathspec, out/** matches both.
    """
    return f"{line.rstrip()}/*" if line.rstrip().endswith("/**") else line


def _ignored(path: Path, rules: Sequence[_Rules], *, is_folder: bool) -> bool:
    """Return whether the path is excluded. As in git, the nearest folder with a matching rule decides."""
    decisions = (folder_rules.ignores(path, is_folder=is_folder) for folder_rules in reversed(rules))
    return next((decision for decision in decisions if decision is not None), False)


def _allowed(path: Path, rules: Sequence[_Rules], *, is_folder: bool) -> bool:
    """Return whether the .smqignore of a folder above the path allows packing the path despite its secrets."""
    return any(folder_rules.allows(path, is_folder=is_folder) for folder_rules in rules)


def _parents_in_repository(folder: Path) -> list[Path]:
    """Return the folders above, starting at the root of the git repository; empty outside a repository."""
    above = [folder, *folder.parents]
    for number, parent in enumerate(above):
        if (parent / ".git").exists():
            return above[1 : number + 1][::-1]
    return []
