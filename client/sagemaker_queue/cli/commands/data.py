"""``smq data``: list, upload, download, copy and remove data in S3, by data link or by address."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sagemaker_queue.cli.completion import files
from sagemaker_queue.cli.output import DONE, NOT_FOUND, REFUSED, print_json, print_left_out, print_note
from sagemaker_queue.cli.parser import argument, checked, connection, flag, group, json_flag, option
from sagemaker_queue.cli.progress_bars import TransferProgress
from sagemaker_queue.errors import InvalidOption, StorageError
from sagemaker_queue.jobs.formatting import amount, file_size, moment, one_line
from sagemaker_queue.presentation.text.layout import table
from sagemaker_queue.queue.config.job_defaults import seconds
from sagemaker_queue.queue.config.queue_config import find_config, find_defaults
from sagemaker_queue.queue.data_links import S3Address, address_of, is_address, is_utf8

if TYPE_CHECKING:
    from sagemaker_queue.jobs.packaging.storage import S3Storage, Stored

_PATH = "a path in a data link, or an s3:// address"
_LONGEST_URL = 7 * 86_400  # seconds, S3's limit


data = group(
    "data",
    help="list, upload, download and remove data in S3",
    description="List, upload, download and remove data in S3. A path is the path in a job's working folder: the "
    "data links of the profile (smq config set data.PATH s3://...) map it to an address in S3.",
    examples=["smq data put data/imagenet", "smq data ls data/imagenet", "smq data get s3://bucket/file"],
)


@data.subcommand(
    "ls",
    help="list data links, or the files in one",
    description="List the data links, or the files in a folder: sizes and upload times (UTC).",
    examples=["smq data ls", "smq data ls data/imagenet", "smq data ls -r s3://datasets/imagenet"],
)
@argument("path", metavar="PATH", required=False, help=_PATH)
@flag("-r", "--recursive", help="include all files below the folder")
@json_flag()
def data_ls(path: str | None, recursive: bool, as_json: bool) -> int:
    """List data links or objects."""
    if path is None:
        return _list_links(as_json)
    folder, storage = _address(path), _storage()
    if storage.is_file(folder):
        found: list[S3Address | Stored] = list(storage.stored(folder))
    else:
        found = list(storage.objects(folder) if recursive else storage.entries(folder))
    if as_json:
        print_json([_entry_json(entry) for entry in found])
        return DONE if found else _report_missing(folder)
    sizes = []
    for entry in found:
        if isinstance(entry, S3Address):
            print(f"{'':35}  {one_line(str(entry))}")
        else:
            sizes.append(entry.size)
            print(f"{file_size(entry.size):>14}  {moment(entry.modified):19}  {one_line(str(entry.address))}")
    if not found:
        return _report_missing(folder)
    folders = f"{amount(len(found) - len(sizes), 'folder')} and " if len(sizes) < len(found) else ""
    print(f"{folders}{amount(len(sizes), 'file')}, {file_size(sum(sizes))}")
    return DONE


def _entry_json(entry: S3Address | Stored) -> dict[str, object]:
    if isinstance(entry, S3Address):
        return {"uri": str(entry), "size": None, "modified": None}
    modified = entry.modified.isoformat() if entry.modified else None
    return {"uri": str(entry.address), "size": entry.size, "modified": modified}


def _list_links(as_json: bool) -> int:
    links = _links()
    if as_json:
        print_json({path: str(address) for path, address in links.items()})
    elif links:
        print(table(["Path", "S3"], [[path, str(address)] for path, address in sorted(links.items())]))
    else:
        print("There are no data links; smq config set data.PATH s3://... creates one.", file=sys.stderr)
    return DONE


@data.subcommand(
    "put",
    help="upload a file or folder to S3",
    description="Upload a file or folder to S3, and replace files of the same names. Files that S3 has with the "
    "same content are not sent, so a repeated command continues an interrupted upload. Links in a folder are followed, "
    "except a link to a folder that contains it.",
    examples=[
        "smq data put data/imagenet",
        "smq data put val.csv s3://datasets/imagenet/val.csv",
        "smq -c prod data put data/imagenet --from research",
    ],
)
@argument("file", metavar="FILE", shell_complete=files, help="a file or folder on this machine")
@argument("to", metavar="TO", required=False, help=f"{_PATH} (default: the address of the data link)")
@option(
    "--from",
    "source_profile",
    metavar="PROFILE",
    help="copy from the data link of another profile, or from an s3:// address, with that profile's credentials",
)
def data_put(file: str, to: str | None, source_profile: str | None) -> int:
    """Upload a file or folder, or copy it from another profile; skip files with the same content."""
    from sagemaker_queue.jobs.packaging.storage import same_content  # noqa: PLC0415  # boto3

    if source_profile:
        return _copy(file, to, source_profile)
    target, storage = _address(to or file), _storage()
    source = Path(file)
    left_out: list[tuple[object, str]] = []
    try:
        is_folder = stat.S_ISDIR(source.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InvalidOption(f"There is no file or folder {source} here.") from error
    except OSError as error:
        raise InvalidOption(f"{source} cannot be uploaded: {error.strerror or error}.") from error
    if is_folder:
        paths = list(_files_below(source, left_out))
        print_left_out(left_out, "uploaded")
        to_send = {path: target / path.relative_to(source).as_posix() for path in paths}
    else:
        target = _file_address(target, source.name)
        to_send = {source: target}
    sizes = {path: path.stat().st_size for path in to_send}
    storage.ensure_bucket(target.bucket)
    existing = _objects_at(target, storage)
    same_size = [
        path for path, address in to_send.items() if address in existing and existing[address].size == sizes[path]
    ]
    with TransferProgress("Comparing", sum(sizes[path] for path in same_size)) as progress:
        for path in same_size:
            if same_content(path, existing[to_send[path]]):
                del to_send[path]
            progress(sizes[path])
    with TransferProgress("Uploading", sum(sizes[path] for path in to_send)) as progress:
        for path, address in to_send.items():
            storage.put(path, address, progress)
    _print_uploaded([sizes[path] for path in to_send], len(sizes), target)
    return REFUSED if left_out else DONE


def _files_below(folder: Path, left_out: list[tuple[object, str]], above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield the files in a folder, sorted, also those behind links. Add other paths, with a reason, to ``left_out``.

    ``above`` are the resolved folders that contain this folder, so that links do not lead in circles. A folder that
    several links lead to is uploaded at the path of each link, as by ``cp -rL``.
    """
    try:
        real = folder.resolve()
        if real in above:
            left_out.append((folder, "a link to a folder that contains it"))
            return
        paths = sorted(folder.iterdir())
    except OSError as error:
        left_out.append((folder, error.strerror or str(error)))
        return
    for path in paths:
        if problem := _upload_problem(path):
            left_out.append((path, problem))
        elif path.is_dir():
            yield from _files_below(path, left_out, (*above, real))
        else:
            yield path


def _upload_problem(path: Path) -> str | None:
    """Return the reason why an entry of a folder cannot be uploaded; None for a readable file, and for a folder."""
    if not is_utf8(path.name):
        return "its name is not UTF-8 text"
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            path.open("rb").close()  # raises OSError unless this user may read the file
    except (FileNotFoundError, NotADirectoryError):
        return "a broken link"
    except OSError as error:
        return error.strerror or str(error)
    return None if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else "not a file or folder"


def _copy(path: str, to: str | None, source_profile: str) -> int:
    """Copy a file or folder from another profile's S3 to the own profile's S3.

    S3 copies the data itself if the credentials of one of the profiles allow this.
    """
    from sagemaker_queue.jobs.packaging.copying import Copier  # noqa: PLC0415  # boto3
    from sagemaker_queue.jobs.packaging.storage import S3Storage  # noqa: PLC0415

    options = connection()
    config, config_of_source = (
        find_config(url=options.url, profile=options.profile),
        find_config(profile=source_profile),
    )
    if is_address(path) and not to:
        raise InvalidOption(f"{path} is an address of the profile {source_profile}: name as TO where to copy it.")
    source = _address_in(path, find_defaults(profile=source_profile).data)
    target = _address(to or path)
    storage = S3Storage.of(config)
    storage_of_source = storage if config == config_of_source else S3Storage.of(config_of_source)
    found = storage_of_source.stored(source)
    if not found:
        return _report_missing(source)
    if _is_file(found, source) and not source.key.endswith("/"):  # a key with a slash at its end marks an empty folder
        target = _file_address(target, source.name)
        to_send = {found[0]: target}
    else:
        to_send = {stored: target / stored.address.key.removeprefix(source.folder.key) for stored in found}
    storage.ensure_bucket(target.bucket)
    copier = Copier(storage_of_source, storage, partial(_print_streaming_note, source, target))
    existing = _objects_at(target, storage)
    for stored, address in list(to_send.items()):
        if address in existing and copier.has_arrived(stored, existing[address]):
            del to_send[stored]
    with TransferProgress("Copying", sum(stored.size for stored in to_send)) as progress:
        for stored, address in to_send.items():
            copier.copy(stored, address, progress)
    return _print_uploaded([stored.size for stored in to_send], len(found), target)


def _print_streaming_note(source: S3Address, target: S3Address) -> None:
    print_note(
        f"Neither profile's credentials may read {source} and write {target}, so S3 cannot copy by itself: "
        "the data goes through this machine, and none of it is kept on disk."
    )


def _objects_at(target: S3Address, storage: S3Storage) -> dict[S3Address, Stored]:
    """Return the objects at the target by address.

    Without permission to list objects, look up the single object. Return an empty dictionary if both are refused.
    """
    for find_objects in (storage.listed, storage.stored):
        try:
            return {stored.address: stored for stored in find_objects(target)}
        except StorageError:
            continue
    return {}


def _print_uploaded(sizes: Sequence[int], total: int, target: S3Address) -> int:
    skipped = total - len(sizes)
    skipped_note = f"; {amount(skipped, 'file')} already there" if skipped else ""
    print(f"{amount(len(sizes), 'file')}, {file_size(sum(sizes))}, uploaded to {target}{skipped_note}")
    return DONE


@data.subcommand(
    "get",
    help="download a file or folder from S3",
    description="Download a file or folder from S3.",
    examples=["smq data get data/imagenet/val.csv", "smq data get s3://bucket/output results"],
)
@argument("path", metavar="PATH", help=_PATH)
@argument(
    "to",
    metavar="TO",
    required=False,
    type=Path,
    shell_complete=files,
    help="the destination (default: the same path, or its name)",
)
def data_get(path: str, to: Path | None) -> int:
    """Download a file or folder."""
    from sagemaker_queue.jobs.packaging.download import fetch_all, fetch_file  # noqa: PLC0415  # boto3

    source, storage = _address(path), _storage()
    found = [stored for stored in storage.stored(source) if not _is_marker(stored)]
    if not found:
        return _report_missing(source)
    target, total = _target(path, source, to), sum(stored.size for stored in found)
    is_file = _is_file(found, source)
    if is_file and target.is_dir():
        target /= _file_name_of(source)
    with TransferProgress("Fetching", total) as progress:
        if is_file:
            fetch_file(found[0], target, storage, progress)
            return _print_downloaded(found, target)
        done = fetch_all(found, source.folder.key, target, storage, progress)
    print_left_out([(stored.address, reason) for stored, reason in done.refused], "downloaded")
    _print_downloaded(done.fetched, target)
    return REFUSED if done.refused else DONE


def _target(path: str, source: S3Address, to: Path | None) -> Path:
    """Return the local target: ``to``, else ``path`` in the working folder, else the last name of the address.

    The target of a whole bucket is the working folder.
    """
    if to:
        return to
    return Path(path) if not is_address(path) else Path(_file_name_of(source)) if source.name else Path()


def _file_name_of(address: S3Address) -> str:
    """Return the last name of an address. Raises InvalidOption if that name cannot be a file's name."""
    from sagemaker_queue.jobs.packaging.download import PathRefused, path_parts  # noqa: PLC0415  # boto3

    try:
        return path_parts(address.name)[-1]
    except PathRefused as error:
        raise InvalidOption(f"{address} does not give a destination ({error}): name a file or folder.") from error


@data.subcommand(
    "rm",
    help="remove a file or folder in S3",
    description="Remove a file in S3, or all files in a folder.",
    examples=["smq data rm data/imagenet/val.csv", "smq data rm --recursive s3://bucket/old"],
)
@argument("path", metavar="PATH", help=_PATH)
@flag("-r", "--recursive", help="remove a folder")
def data_rm(path: str, recursive: bool) -> int:
    """Remove an object, or with ``--recursive`` all objects of a folder."""
    address, storage = _address(path), _storage()
    if not address.key:
        raise InvalidOption(f"{address} is a whole bucket: name the file or folder to remove.")
    found = storage.stored(address)
    if not found:
        return _report_missing(address)
    is_file = _is_file(found, address) and not address.key.endswith("/")  # smq data ls lists such a key as a folder
    if not is_file and not recursive:
        total = file_size(sum(stored.size for stored in found))
        raise InvalidOption(
            f"{address.folder} is a folder with {amount(len(found), 'file')}, {total}: --recursive removes it."
        )
    storage.remove([stored.address for stored in found])
    print(f"{amount(len(found), 'file')} removed from {address if is_file else address.folder}")
    return DONE


@data.subcommand(
    "url",
    help="create a URL for a file in S3",
    description="Print a URL with which everyone can read a file for some time, without credentials.",
    examples=["smq data url data/imagenet/val.csv --expires 2h"],
)
@argument("path", metavar="PATH", help=_PATH)
@option(
    "--expires",
    metavar="TIME",
    type=checked(seconds),
    default="1h",
    help="the lifetime of the URL, such as 30m or 7d (default 1h)",
)
def data_url(path: str, expires: int) -> int:
    """Print a presigned URL."""
    address, storage = _address(path), _storage()
    if expires > _LONGEST_URL:
        raise InvalidOption("A URL can last for 7 days at most.")
    if not storage.has(address):
        return _report_missing(address)
    print(storage.url(address, expires))
    return DONE


def _address(text: str) -> S3Address:
    return _address_in(text, _links())


def _address_in(text: str, links: Mapping[str, S3Address]) -> S3Address:
    return S3Address.parse(text) if is_address(text) else address_of(text, links)


def _links() -> Mapping[str, S3Address]:
    options = connection()
    return find_defaults(url=options.url, profile=options.profile).data


def _storage() -> S3Storage:
    from sagemaker_queue.jobs.packaging.storage import S3Storage  # noqa: PLC0415  # boto3

    options = connection()
    return S3Storage.of(find_config(url=options.url, profile=options.profile))


def _is_marker(stored: Stored) -> bool:
    """Return whether an object only marks an empty folder. The console of S3 creates such objects."""
    return stored.size == 0 and stored.address.key.endswith("/")


def _is_file(found: Sequence[Stored], address: S3Address) -> bool:
    """Return whether the address names a file, not a folder: the only object found has exactly this key."""
    return len(found) == 1 and found[0].address == address


def _file_address(target: S3Address, name: str) -> S3Address:
    return target / name if not target.key or target.key.endswith("/") else target


def _print_downloaded(found: Iterable[Stored], target: object) -> int:
    sizes = [stored.size for stored in found]
    print(f"{amount(len(sizes), 'file')}, {file_size(sum(sizes))}, now in {target}")
    return DONE


def _report_missing(address: S3Address) -> int:
    print(f"smq: There is no file at {address}.", file=sys.stderr)
    return NOT_FOUND
