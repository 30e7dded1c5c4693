"""Addresses in S3, and data links, which map paths in the working folder to folders or files in S3."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sagemaker_queue.errors import InvalidOption


@dataclass(frozen=True)
class S3Address:
    """``s3://bucket/key``; the key of a folder may end in a slash."""

    bucket: str
    key: str = ""

    def __post_init__(self) -> None:
        """Raise InvalidOption if the address is not UTF-8 text. The name of a file on Linux may have other bytes."""
        if not is_utf8(f"{self.bucket}{self.key}"):
            raise InvalidOption(f"{f's3://{self.bucket}/{self.key}'!r} is not UTF-8 text, as addresses in S3 are.")

    @classmethod
    def parse(cls, text: str) -> "S3Address":
        """Parse ``s3://bucket/key``. Raises InvalidOption for any other text."""
        scheme, _, rest = text.partition("://")
        bucket, _, key = rest.partition("/")
        if scheme != "s3" or not bucket:
            raise InvalidOption(f"{text!r} is not an S3 address: it must look like s3://bucket/folder.")
        return cls(bucket, key)

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    def __truediv__(self, name: str) -> "S3Address":
        return replace(self, key=f"{self.folder.key}{name}")

    @property
    def folder(self) -> "S3Address":
        """The same address with a slash at the end, so that the key is not a prefix of keys outside the folder."""
        return self if not self.key or self.key.endswith("/") else replace(self, key=f"{self.key}/")

    @property
    def name(self) -> str:
        """Last part of the key."""
        return posixpath.basename(self.key.rstrip("/"))


def is_utf8(text: str) -> bool:
    """Return whether the text can be encoded. Python decodes other bytes of arguments and file names to surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_address(text: str) -> bool:
    """Return whether the text is an address in S3 (``s3://...``) and not a path."""
    return text.startswith("s3://")


def parse_link(text: str) -> tuple[str, S3Address]:
    """Parse ``PATH=s3://bucket/key``. Raises InvalidOption for any other text."""
    path, equals, address = text.partition("=")
    if not equals:
        raise InvalidOption(f"{text!r} is not a data link: it must look like data/images=s3://bucket/images.")
    return link_path(path), S3Address.parse(address)


def link_path(path: str) -> str:
    """Return a path in the working folder in normal form.

    Raises InvalidOption for an empty or absolute path, a path that leads out of the folder, and the folder itself.
    """
    normal = posixpath.normpath(path)
    if not path or posixpath.isabs(normal) or normal.split("/")[0] in ("..", "."):
        raise InvalidOption(f"{path!r} cannot be a data link: it must be a path inside the working folder.")
    return normal


def address_of(path: str, links: Mapping[str, S3Address]) -> S3Address:
    """Return the address in S3 of a path in the working folder. Raises InvalidOption if the path is in no data link."""
    normal = link_path(path)
    for linked in sorted(links, key=len, reverse=True):
        if normal == linked:
            return links[linked]
        if normal.startswith(f"{linked}/"):
            below = normal[len(linked) + 1 :]
            kept = links[linked] / below
            return kept.folder if path.endswith("/") else kept
    known = ", ".join(sorted(links)) or "none"
    raise InvalidOption(f"{path} is in no data link of the profile (it has: {known}); give its s3:// address instead.")
