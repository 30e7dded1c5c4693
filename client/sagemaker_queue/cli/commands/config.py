"""``smq config``: show and change profiles, which contain queues' addresses and defaults of jobs."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagemaker_queue.cli.completion import files
from sagemaker_queue.cli.output import DONE, REFUSED, confirmed, is_interactive, print_json, print_note, print_warning
from sagemaker_queue.cli.parser import argument, connection, flag, group, json_flag
from sagemaker_queue.errors import ConfigError, InvalidDocument, InvalidOption, StorageError
from sagemaker_queue.presentation.text.layout import facts, table
from sagemaker_queue.queue.config.notice_settings import SECRET_SETTINGS
from sagemaker_queue.queue.config.queue_config import (
    PROFILE_VARIABLE,
    QUEUE_SETTINGS,
    URL_VARIABLE,
    find_config,
    find_defaults,
    find_notices,
    profile_file,
)
from sagemaker_queue.queue.config.shared_settings import (
    LARGEST_TEXT,
    exported_settings,
    parse_settings,
    setting_changes,
    settings_text,
)
from sagemaker_queue.queue.data_links import S3Address, is_address

if TYPE_CHECKING:
    from sagemaker_queue.queue.config.profiles import ProfileFile

_FIRST = "default"  # the name of a new profile if the user names none


config = group(
    "config",
    help="print or change profiles",
    description="Print or change the profiles: addresses of queues, defaults of jobs (role, image, bucket, "
    "instance_type, project, max_run, volume, checkpoint, data links, environment), and notices "
    "(notify_webhook, notify_topic, notify_on, notify_after). Profiles contain no credentials: these "
    "are AWS's own.",
    examples=[
        "smq -c research config set url https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/prod",
        "smq config set role arn:aws:iam::123456789012:role/training",
        "smq config set data.data/imagenet s3://datasets/imagenet",
    ],
)


@config.subcommand(
    "show",
    help="print the settings in effect",
    description="Print the settings in effect, from the profile and the environment: the queue and the defaults of "
    "its jobs.",
    examples=["smq config show", "smq -c research config show --json"],
)
@json_flag()
def config_show(as_json: bool) -> int:
    """Print the settings in effect, without secret values."""
    options = connection()
    queue = find_config(url=options.url, profile=options.profile)
    jobs = find_defaults(url=options.url, profile=options.profile)
    notices = asdict(find_notices(url=options.url, profile=options.profile))
    notices.update({name: "(set, and not shown)" for name in SECRET_SETTINGS if notices[name]})
    address = {name: getattr(queue, name) for name in QUEUE_SETTINGS}
    values: dict[str, Any] = {**address, **asdict(jobs), **notices}
    values["data"] = {path: str(address) for path, address in jobs.data.items()}
    if as_json:
        print_json(values)
        return DONE
    plain = {name: value for name, value in values.items() if not isinstance(value, (dict, bool))}
    tables = {f"{name}.{key}": value for name in ("data", "env") for key, value in values[name].items()}
    more = {"checkpoint": "true" if jobs.checkpoint else None, "request": ", ".join(jobs.request) or None}
    print(facts({**plain, **more, **tables}))
    return DONE


@config.subcommand("list", help="list the profiles", description="List the profiles.", examples=["smq config list"])
@json_flag()
def config_list(as_json: bool) -> int:
    """Print the profiles."""
    file = _file()
    rows = [
        {"name": name, "url": profile.get("url"), "default": name == file.default}
        for name, profile in file.profiles.items()
    ]
    if as_json:
        print_json(rows)
    elif rows:
        cells = [
            [row["name"], row["url"] or "(the environment's)", "default" if row["default"] else ""] for row in rows
        ]
        print(table(["Profile", "URL", ""], cells))
    else:
        print(f"There are no profiles in {file.path}.")
    return DONE


@config.subcommand(
    "set",
    help="set a setting of a profile",
    description="Set a setting of a profile (-c, else the default profile), which is created if it is missing. "
    "Comments in the file stay. Set url first: a profile needs it.",
    examples=[
        "smq config set image 123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.8",
        "smq config set env.NCCL_DEBUG INFO",
    ],
)
@argument("setting", metavar="SETTING", help="the setting, such as role, data.PATH or env.NAME")
@argument("value", metavar="VALUE", help="the new value")
def config_set(setting: str, value: str) -> int:
    """Set a setting of a profile."""
    return _change(setting, value)


@config.subcommand(
    "unset",
    help="remove a setting from a profile",
    description="Remove a setting from a profile (-c, else the default profile).",
    examples=["smq config unset data.data/imagenet"],
)
@argument("setting", metavar="SETTING", help="the setting, as for smq config set")
def config_unset(setting: str) -> int:
    """Remove a setting from a profile."""
    return _change(setting, None)


def _change(setting: str, value: str | None) -> int:
    file = _file()
    profile = _profile_to_change(file)
    file.set(profile, setting, value)
    done = "is no longer set" if value is None else "is set" if setting in SECRET_SETTINGS else f"is {value}"
    print(f"{setting} of the profile {profile} {done}")
    _warn_if_unused(file, profile)
    return DONE


def _profile_to_change(file: ProfileFile) -> str:
    return connection().profile or os.environ.get(PROFILE_VARIABLE) or file.default or _FIRST


def _warn_if_unused(file: ProfileFile, profile: str) -> None:
    # A profile without an address is still used: its defaults apply to the queue that the variable names.
    if os.environ.get(URL_VARIABLE) and "url" in file.profiles[profile]:
        print_warning(f"{URL_VARIABLE} is set, so no profile is used without -c {profile}")


@config.subcommand(
    "export",
    help="print the settings to send to the team",
    description="Print the settings in effect that all users of the queue need, as text for smq config import: the "
    "queue's address, role, image, bucket, instance type, project and data links. Personal settings (aws_profile, "
    "columns, notices) and settings that may contain secrets (env, request) are left out.",
    examples=[
        "smq config export > queue.toml",
        "smq config export | aws s3 cp - s3://ml-training-123456789012/queue.toml",
    ],
)
def config_export() -> int:
    """Print the shared settings as TOML."""
    options = connection()
    jobs = find_defaults(url=options.url, profile=options.profile)
    print(settings_text(exported_settings(find_config(url=options.url, profile=options.profile), jobs)), end="")
    left_out = [name for name in ("env", "request") if getattr(jobs, name)]
    if left_out:
        print_note(f"left out, because it may contain secrets: {', '.join(left_out)}")
    return DONE


@config.subcommand(
    "import",
    help="use the settings that an operator has sent",
    description="Read the output of smq config export, check each value, print the changes of the profile (-c, else "
    "the default profile), and store them. Settings that the text does not name remain. Before a value "
    "is replaced, smq asks; without a terminal, replacing takes --yes. An object in S3 is read with "
    "your credentials, from a bucket of your account. The settings decide where your code is uploaded: "
    "import them only from a source that you trust.",
    examples=[
        "smq config import queue.toml",
        "smq config import s3://ml-training-123456789012/queue.toml",
        "ssh ops cat queue.toml | smq config import -",
    ],
)
@argument("source", metavar="SOURCE", shell_complete=files, help="a file, s3://BUCKET/KEY, or - for the standard input")
@flag("--yes", help="replace values without a question")
def config_import(source: str, yes: bool) -> int:
    """Store the settings of a text in a profile."""
    settings = parse_settings(_content(source), "standard input" if source == "-" else source)
    file = _file()
    profile = _profile_to_change(file)
    changes = setting_changes(file.profiles.get(profile, {}), settings)
    if not changes:
        print(f"Nothing to change: the profile {profile} has these settings.")
        return DONE
    print(f"Changes of the profile {profile}:\n")
    print(table(["Setting", "Now", "New"], [[change.name, change.old or "", change.new] for change in changes]))
    print(flush=True)
    replaced = [change.name for change in changes if change.old is not None]
    if replaced and not yes:
        if not is_interactive():
            raise InvalidOption(f"Nothing is changed. To replace {', '.join(replaced)} of {profile}, add --yes.")
        if not confirmed(f"Replace {', '.join(replaced)}?"):
            print("Nothing is changed.")
            return REFUSED
    file.merge(profile, settings)
    print(f"The profile {profile} has the new settings. Check them: smq doctor")
    _warn_if_unused(file, profile)
    return DONE


def _content(source: str) -> bytes:
    """Return the content of a source.

    If a file is longer than an import accepts, return one byte too many, so that the import is refused.
    """
    if is_address(source):
        return _content_in_s3(source)
    try:
        if source == "-":
            return sys.stdin.buffer.read(LARGEST_TEXT + 1)
        with Path(source).open("rb") as file:
            return file.read(LARGEST_TEXT + 1)
    except (OSError, ValueError) as error:
        raise InvalidDocument(f"{source} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def _content_in_s3(source: str) -> bytes:
    from sagemaker_queue.jobs.packaging.storage import S3Storage  # noqa: PLC0415  # boto3

    address = S3Address.parse(source)
    if not address.name or source.endswith("/"):
        raise InvalidOption(f"{source} is not an object: it must look like s3://bucket/queue.toml.")
    options, queue = connection(), None
    with suppress(ConfigError):  # the first import comes before any configuration
        queue = find_config(url=options.url, profile=options.profile)
    try:
        return S3Storage.of(queue).read_small(address, LARGEST_TEXT)
    except StorageError as error:
        alternative = f"aws s3 cp {shlex.quote(source)} - | smq config import -"
        raise StorageError(
            f"{error} Another way to read it, also from a bucket of another account: {alternative}"
        ) from error


@config.subcommand(
    "use",
    help="choose the default profile",
    description="Make a profile the default profile, which is used if no other profile is named.",
    examples=["smq config use research"],
)
@argument("name", metavar="NAME", help="the name of the profile")
def config_use(name: str) -> int:
    """Change the default profile."""
    _file().use(name)
    print(f"{name} is the default profile")
    return DONE


@config.subcommand(
    "path",
    help="print the path of the profile file",
    description="Print the path of the profile file, also if the file is missing.",
    examples=['$EDITOR "$(smq config path)"'],
)
def config_path() -> int:
    """Print the path of the profile file."""
    print(profile_file())
    return DONE


def _file() -> ProfileFile:
    from sagemaker_queue.queue.config.profiles import ProfileFile  # noqa: PLC0415  # tomlkit

    return ProfileFile(profile_file())
