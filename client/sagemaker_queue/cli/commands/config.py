"""``smq config``: show and change profiles, which contain queues' addresses and defaults of jobs."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sagemaker_queue.cli.output import DONE, print_json, print_warning
from sagemaker_queue.cli.parser import argument, connection, group, json_flag
from sagemaker_queue.presentation.text.layout import facts, table
from sagemaker_queue.queue.config.notice_settings import SECRET_SETTINGS
from sagemaker_queue.queue.config.queue_config import (
    PROFILE_VARIABLE,
    URL_VARIABLE,
    find_config,
    find_defaults,
    find_notices,
    profile_file,
)

if TYPE_CHECKING:
    from sagemaker_queue.queue.config.profiles import ProfileFile

_FIRST = "default"  # the name of a new profile if the user names none


config = group(
    "config",
    help="show or change profiles",
    description="Show or change the profiles: where queues are, and what jobs have in common (role, image, bucket, "
    "instance_type, project, max_run, volume, checkpoint, data links, environment), and notices (notify_webhook, "
    "notify_topic, notify_on, notify_after). Credentials are AWS's own, and not here.",
    examples=[
        "smq -c research config set url https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/prod",
        "smq config set role arn:aws:iam::123456789012:role/training",
        "smq config set data.data/imagenet s3://datasets/imagenet",
    ],
)


@config.subcommand(
    "show",
    help="show what holds now",
    description="Show the queue that is used, and what its jobs have in common, from profile and environment.",
    examples=["smq config show", "smq -c research config show --json"],
)
@json_flag()
def config_show(as_json: bool) -> int:
    """Print the settings in effect, without secret values."""
    named = connection()
    queue = find_config(url=named.url, profile=named.profile)
    jobs = find_defaults(url=named.url, profile=named.profile)
    notices = asdict(find_notices(url=named.url, profile=named.profile))
    notices.update({name: "(set, and not shown)" for name in SECRET_SETTINGS if notices[name]})
    values: dict[str, Any] = {**asdict(queue), **asdict(jobs), **notices}
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
        {"name": name, "url": profile["url"], "default": name == file.default}
        for name, profile in file.profiles.items()
    ]
    if as_json:
        print_json(rows)
    elif rows:
        cells = [[row["name"], row["url"], "default" if row["default"] else ""] for row in rows]
        print(table(["Profile", "URL", ""], cells))
    else:
        print(f"There are no profiles in {file.path}.")
    return DONE


@config.subcommand(
    "set",
    help="set something in a profile",
    description="Set something in a profile (-c, else the default one), which is made if it is not there. Comments "
    "in the file stay. url comes first: a profile has one.",
    examples=[
        "smq config set image 123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.8",
        "smq config set env.NCCL_DEBUG INFO",
    ],
)
@argument("setting", metavar="SETTING", help="such as role, data.PATH or env.NAME")
@argument("value", metavar="VALUE", help="its new value")
def config_set(setting: str, value: str) -> int:
    """Set a setting of a profile."""
    return _change(setting, value)


@config.subcommand(
    "unset",
    help="take something out of a profile",
    description="Take something out of a profile (-c, else the default one).",
    examples=["smq config unset data.data/imagenet"],
)
@argument("setting", metavar="SETTING", help="as for smq config set")
def config_unset(setting: str) -> int:
    """Remove a setting from a profile."""
    return _change(setting, None)


def _change(setting: str, value: str | None) -> int:
    file = _file()
    profile = connection().profile or os.environ.get(PROFILE_VARIABLE) or file.default or _FIRST
    file.set(profile, setting, value)
    done = "is no longer set" if value is None else "is set" if setting in SECRET_SETTINGS else f"is {value}"
    print(f"{setting} of the profile {profile} {done}")
    if os.environ.get(URL_VARIABLE):
        print_warning(f"{URL_VARIABLE} is set, so no profile is used without -c {profile}")
    return DONE


@config.subcommand(
    "use",
    help="make a profile the default one",
    description="Make a profile the default one: it is used where no other is named.",
    examples=["smq config use research"],
)
@argument("name", metavar="NAME", help="of the profile")
def config_use(name: str) -> int:
    """Change the default profile."""
    _file().use(name)
    print(f"{name} is the default profile")
    return DONE


@config.subcommand(
    "path",
    help="print where the profiles are",
    description="Print the path of the profile file, whether it is there or not.",
    examples=['$EDITOR "$(smq config path)"'],
)
def config_path() -> int:
    """Print the path of the profile file."""
    print(profile_file())
    return DONE


def _file() -> ProfileFile:
    from sagemaker_queue.queue.config.profiles import ProfileFile  # noqa: PLC0415  # tomlkit

    return ProfileFile(profile_file())
