"""The process behind `ministack.Ministack`. Run as a script: python server.py FD (a bound socket)."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from hypercorn.asyncio import serve
from hypercorn.config import Config
from ministack.app import app

ENCRYPTION = b"x-amz-server-side-encryption"
KEY = ENCRYPTION + b"-aws-kms-key-id"
AWS_KEY = b"alias/aws/s3"


async def with_aws_key(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """ministack, with the KMS key that S3 takes where a request names none: aws/s3, which each account has.

    The SageMaker SDK relies on it for every upload of a source folder; ministack refuses such a request.
    """
    if scope["type"] == "http":
        headers = dict(scope["headers"])
        if headers.get(ENCRYPTION) == b"aws:kms" and KEY not in headers:
            scope = {**scope, "headers": [*scope["headers"], (KEY, AWS_KEY)]}
    await app(scope, receive, send)


def main(descriptor: int) -> None:
    """Serve until a signal ends it."""
    config = Config()
    config.bind = [f"fd://{descriptor}"]
    config.keep_alive_timeout = 75
    asyncio.run(serve(with_aws_key, config))  # type: ignore[arg-type]


if __name__ == "__main__":
    main(int(sys.argv[1]))
