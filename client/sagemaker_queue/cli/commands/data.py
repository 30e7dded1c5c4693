"""``smq data``: what is in S3 behind the data links of a profile, or at any address there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sagemaker_queue.cli.arguments import add_json
from sagemaker_queue.cli.job_options import checked
from sagemaker_queue.cli.output import DONE, NOT_FOUND, print_json
from sagemaker_queue.cli.parser import Commands
from sagemaker_queue.cli.render.progress import ProgressLine
from sagemaker_queue.config.job_defaults import seconds
from sagemaker_queue.config.queue_config import find_config, find_defaults
from sagemaker_queue.errors import InvalidOption, StorageError
from sagemaker_queue.packaging.links import S3Address, address_of, is_address
from sagemaker_queue.text import amount, file_size, table

if TYPE_CHECKING:
    from sagemaker_queue.packaging.storage import Storage, Stored

_PLACE = "a path in a data link, or an s3:// address"
_LONGEST_URL = 7 * 86_400  # seconds, S3's limit


def add_data_commands(commands: Commands) -> None:
    """Add the commands about data."""
    data = commands.add_group(
        "data",
        help="list, bring, fetch and remove data in S3",
        description="List, bring, fetch and remove data in S3. A path means what jobs find there: the profile's data "
        "links (smq config set data.PATH s3://...) say where it is in S3.",
        examples=["smq data put data/imagenet", "smq data ls data/imagenet", "smq data get s3://bucket/file"],
    )
    listing = data.add_local(
        "ls",
        _list,
        help="list data links, or what is in one",
        description="List the data links, or what is in a folder.",
        examples=["smq data ls", "smq data ls data/imagenet", "smq data ls -r s3://datasets/imagenet"],
    )
    listing.add_argument("place", metavar="PATH", nargs="?", help=_PLACE)
    listing.add_argument("-r", "--recursive", action="store_true", help="all that is below it")
    add_json(listing)
    put = data.add_local(
        "put",
        _put,
        help="bring a file or folder to S3",
        description="Bring a file or folder to S3, in place of what is there under the same names.",
        examples=[
            "smq data put data/imagenet",
            "smq data put val.csv s3://datasets/imagenet/val.csv",
            "smq -c prod data put data/imagenet --from research",
        ],
    )
    put.add_argument("file", metavar="FILE", help="a file or folder on this machine")
    put.add_argument("place", metavar="TO", nargs="?", help=f"{_PLACE} (default: where the links have it)")
    put.add_argument(
        "--from", metavar="PROFILE", dest="source", help="copy it from another profile's data link instead"
    )
    get = data.add_local(
        "get",
        _get,
        help="fetch a file or folder from S3",
        description="Fetch a file or folder from S3.",
        examples=["smq data get data/imagenet/val.csv", "smq data get s3://bucket/output results"],
    )
    get.add_argument("place", metavar="PATH", help=_PLACE)
    get.add_argument("file", metavar="TO", nargs="?", type=Path, help="where to (default: the same path, or its name)")
    remove = data.add_local(
        "rm",
        _remove,
        help="remove a file or folder in S3",
        description="Remove a file in S3, or all that is in a folder.",
        examples=["smq data rm data/imagenet/val.csv", "smq data rm --recursive s3://bucket/old"],
    )
    remove.add_argument("place", metavar="PATH", help=_PLACE)
    remove.add_argument("-r", "--recursive", action="store_true", help="also if it is a folder")
    url = data.add_local(
        "url",
        _url,
        help="make a URL for a file in S3",
        description="Print a URL at which anybody can read a file for some time, and without credentials.",
        examples=["smq data url data/imagenet/val.csv --expires 2h"],
    )
    url.add_argument("place", metavar="PATH", help=_PLACE)
    url.add_argument(
        "--expires", metavar="TIME", type=checked(seconds), default=3600, help="such as 30m or 7d (default 1h)"
    )


def _list(arguments: argparse.Namespace) -> int:
    if arguments.place is None:
        links = _links(arguments)
        if arguments.json:
            print_json({path: str(address) for path, address in links.items()})
        elif links:
            print(table(["Path", "S3"], [[path, str(address)] for path, address in sorted(links.items())]))
        else:
            print("There are no data links; smq config set data.PATH s3://... makes one.", file=sys.stderr)
        return DONE
    place, storage = _place(arguments, arguments.place), _storage(arguments)
    if storage.is_file(place):
        found: list[S3Address | Stored] = list(storage.stored(place))
    else:
        found = list(storage.objects(place) if arguments.recursive else storage.entries(place))
    rows: list[tuple[str, int | None]] = [
        (one.key, None) if isinstance(one, S3Address) else (one.address.key, one.size) for one in found
    ]
    if arguments.json:
        print_json([{"uri": f"s3://{place.bucket}/{key}", "size": size} for key, size in rows])
    elif rows:
        print(
            "\n".join(f"{'' if size is None else file_size(size):>14}  s3://{place.bucket}/{key}" for key, size in rows)
        )
    return DONE if rows else _nothing(place)


def _put(arguments: argparse.Namespace) -> int:
    target, storage = _place(arguments, arguments.place or arguments.file), _storage(arguments)
    if arguments.source:
        source = address_of(arguments.file, find_defaults(profile=arguments.source).data)
        found = storage.stored(source)
        with ProgressLine("Copying", sum(one.size for one in found)) as progress:
            for one in found:
                storage.copy(one.address, _below(one.address, source, target), progress)
        return _moved(found, target) if found else _nothing(source)
    file = Path(arguments.file)
    if not file.exists():
        raise InvalidOption(f"There is no file or folder {file} here.")
    files = [path for path in sorted(file.rglob("*")) if path.is_file()] if file.is_dir() else [file]
    sizes = [path.stat().st_size for path in files]
    storage.make_ready(target.bucket)
    with ProgressLine("Uploading", sum(sizes)) as progress:
        for path in files:
            where = target / path.relative_to(file).as_posix() if file.is_dir() else _file_in(target, path.name)
            storage.put(path, where, progress)
    print(f"{amount(len(files), 'file')}, {file_size(sum(sizes))}, brought to {target}")
    return DONE


def _get(arguments: argparse.Namespace) -> int:
    place, storage = _place(arguments, arguments.place), _storage(arguments)
    found = storage.stored(place)
    if not found:
        return _nothing(place)
    target = arguments.file or Path(place.name if is_address(arguments.place) else arguments.place)
    one_file = _is_file(found, place)
    if one_file and target.is_dir():
        target /= place.name
    with ProgressLine("Fetching", sum(one.size for one in found)) as progress:
        for one in found:
            below = PurePosixPath(one.address.key.removeprefix(place.folder.key))
            if one.address.key.endswith("/"):  # what some tools make for an empty folder
                continue
            if ".." in below.parts:
                raise StorageError(f"{one.address} would lead out of {target}; it is not fetched.")
            storage.get(one.address, target if one_file else target / below, progress)
    return _moved(found, target)


def _remove(arguments: argparse.Namespace) -> int:
    place, storage = _place(arguments, arguments.place), _storage(arguments)
    if not place.key:
        raise InvalidOption(f"{place} is a whole bucket: name what is to be removed.")
    found = storage.stored(place)
    if not found:
        return _nothing(place)
    is_file = _is_file(found, place)
    if not is_file and not arguments.recursive:
        total = file_size(sum(one.size for one in found))
        raise InvalidOption(
            f"{place.folder} is a folder with {amount(len(found), 'file')}, {total}: --recursive removes it."
        )
    storage.remove([one.address for one in found])
    print(f"{amount(len(found), 'file')} removed from {place if is_file else place.folder}")
    return DONE


def _url(arguments: argparse.Namespace) -> int:
    place, storage = _place(arguments, arguments.place), _storage(arguments)
    if arguments.expires > _LONGEST_URL:
        raise InvalidOption("A URL can last for 7 days at most.")
    if not storage.has(place):
        return _nothing(place)
    print(storage.url(place, arguments.expires))
    return DONE


def _place(arguments: argparse.Namespace, text: str) -> S3Address:
    return S3Address.parse(text) if is_address(text) else address_of(text, _links(arguments))


def _links(arguments: argparse.Namespace) -> Mapping[str, S3Address]:
    return find_defaults(url=arguments.url, profile=arguments.profile).data


def _storage(arguments: argparse.Namespace) -> Storage:
    from sagemaker_queue.packaging.storage import Storage  # noqa: PLC0415  # boto3

    return Storage.of(find_config(url=arguments.url, profile=arguments.profile))


def _is_file(found: Sequence[Stored], place: S3Address) -> bool:
    """Whether what was found at a place is the one file that has its name."""
    return len(found) == 1 and found[0].address == place


def _file_in(target: S3Address, name: str) -> S3Address:
    return target / name if not target.key or target.key.endswith("/") else target


def _below(address: S3Address, source: S3Address, target: S3Address) -> S3Address:
    """Where a copied object belongs."""
    return target if address == source else target / address.key.removeprefix(source.folder.key)


def _moved(found: Iterable[Stored], target: object) -> int:
    sizes = [one.size for one in found]
    print(f"{amount(len(sizes), 'file')}, {file_size(sum(sizes))}, now in {target}")
    return DONE


def _nothing(place: S3Address) -> int:
    print(f"smq: There is nothing at {place}.", file=sys.stderr)
    return NOT_FOUND
