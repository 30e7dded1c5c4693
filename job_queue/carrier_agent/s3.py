"""S3 with the standard library only: requests are signed by SigV4, and retried if a retry may help.

Sources: AWS General Reference, "Signature Version 4 signing process", and the API reference of S3.
"""

import contextlib
import hashlib
import hmac
import http.client
import io
import json
import os
import random
import ssl
import threading
import time
import urllib.parse
import urllib.request
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Dict, Iterator, NamedTuple, Optional, Tuple, Union
from xml.etree import ElementTree

UNSIGNED = "UNSIGNED-PAYLOAD"
EMPTY = hashlib.sha256(b"").hexdigest()
TRIES = 8
PART = 64 << 20  # bytes of a part; S3 accepts 10,000 parts
BLOCK = 1 << 20  # bytes that are read at a time
TIMEOUT = 60  # seconds
REFRESH = 300  # credentials are requested again this many seconds before they expire
METADATA = "http://169.254.170.2"  # address where containers get credentials

Body = Union[bytes, Path]


class S3Error(Exception):
    """A request that S3 refused, or that did not reach S3. The message names the request, and never a secret key.

    :param status: the HTTP status; 0 if there was no answer, or the error is not an answer of S3.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Object(NamedTuple):
    """An object of a listing."""

    key: str
    size: int
    etag: str = ""


class Credentials(NamedTuple):
    """Keys of a role, and their expiry in epoch seconds."""

    key: str
    secret: str
    token: str
    expires: float


class CredentialSource:
    """The container's credentials, renewed before they expire. Static credentials of the environment never expire."""

    def __init__(self, environment: Optional[Dict[str, str]] = None) -> None:
        self._environment = dict(os.environ if environment is None else environment)
        self._lock = threading.Lock()
        self._known: Optional[Credentials] = None

    def get(self) -> Credentials:
        """Return credentials that are valid for some minutes. Raise S3Error if there are none."""
        with self._lock:
            if self._known is None or self._known.expires - REFRESH < time.time():
                self._known = self._fetch()
            return self._known

    def _fetch(self) -> Credentials:
        """Return the credentials of the environment, or request new ones from the container's endpoint."""
        env = self._environment
        if "AWS_ACCESS_KEY_ID" in env:
            keys = env["AWS_ACCESS_KEY_ID"], env.get("AWS_SECRET_ACCESS_KEY", ""), env.get("AWS_SESSION_TOKEN", "")
            return Credentials(*keys, expires=float("inf"))
        if "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI" in env:
            address = METADATA + env["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"]
        elif "AWS_CONTAINER_CREDENTIALS_FULL_URI" in env:
            address = env["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
        else:
            raise S3Error("the container has no credentials")
        request = urllib.request.Request(address)
        token_file = env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        token = Path(token_file).read_text().strip() if token_file else env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
        if token:
            request.add_header("Authorization", token)
        last = ""
        for number in range(TRIES):
            try:
                with urllib.request.urlopen(request, timeout=5) as answer:
                    found = json.loads(answer.read().decode())
                expires = datetime.strptime(found["Expiration"][:19], "%Y-%m-%dT%H:%M:%S")
                at = expires.replace(tzinfo=timezone.utc).timestamp()
                return Credentials(found["AccessKeyId"], found["SecretAccessKey"], found["Token"], at)
            except (OSError, ValueError, LookupError) as error:
                last = type(error).__name__
                pause(number)
        raise S3Error(f"the container gives no credentials: {last}")


class S3:
    """The operations on objects that the agent needs, in any bucket that its role may use."""

    def __init__(self, credentials: CredentialSource, environment: Optional[Dict[str, str]] = None) -> None:
        env = dict(os.environ if environment is None else environment)
        self._credentials = credentials
        self._region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
        self._endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or ""
        self._tls = ssl.create_default_context(cafile=env.get("AWS_CA_BUNDLE") or None)

    def get(self, bucket: str, key: str, most: int) -> Optional[bytes]:
        """Return an object's content; None: no such object. Raise S3Error if the object has more than `most` bytes."""
        found = self.read(bucket, key, most)
        return found and found[0]

    def read(self, bucket: str, key: str, most: int) -> Optional[Tuple[bytes, str]]:
        """Return an object's content and ETag; None: no such object. Raise S3Error for more than `most` bytes."""
        found: Dict[str, str] = {}
        status, content = self._request("GET", bucket, key, missing=True, answer=found, most=most)
        return None if status == 404 else (content, found.get("etag", ""))

    def download(self, bucket: str, key: str, target: Path) -> None:
        """Download an object to a file; the file appears when it is complete."""
        target.parent.mkdir(parents=True, exist_ok=True)
        self._request("GET", bucket, key, into=target)

    def put(self, bucket: str, key: str, body: Body, *, new: bool = False, kms_key: Optional[str] = None) -> bool:
        """Write an object; send a large file in parts.

        With `new`, write only if the key has no object. Return False if the key had an object, or if another write to
        the key was in progress. `new` has no effect on a file that is sent in parts.
        """
        headers = {}
        if kms_key:
            headers = {
                "x-amz-server-side-encryption": "aws:kms",
                "x-amz-server-side-encryption-aws-kms-key-id": kms_key,
            }
        if isinstance(body, Path) and body.stat().st_size > PART:
            self._put_parts(bucket, key, body, headers)
            return True
        if new:
            headers["if-none-match"] = "*"
        status, _ = self._request("PUT", bucket, key, body=body, headers=headers, exists=new)
        return status not in (409, 412)

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object; a missing object is no error."""
        self._request("DELETE", bucket, key, missing=True)

    def objects(self, bucket: str, prefix: str) -> Iterator[Object]:
        """Yield all objects whose keys begin with this prefix."""
        more: Dict[str, str] = {}
        while True:
            # Keys are URL-encoded, because XML cannot contain all characters that keys can contain.
            query = {"list-type": "2", "encoding-type": "url", "prefix": prefix, **more}
            _, content = self._request("GET", bucket, "", query=query)
            page = ElementTree.fromstring(content)
            for it in page.iter():
                if _name(it) == "Contents":
                    fields = {_name(field): field.text or "" for field in it}
                    yield Object(urllib.parse.unquote_plus(fields["Key"]), int(fields["Size"]), fields.get("ETag", ""))
            tokens = [it.text for it in page.iter() if _name(it) == "NextContinuationToken"]
            if not tokens or not tokens[0]:
                return
            more = {"continuation-token": tokens[0]}

    def _put_parts(self, bucket: str, key: str, path: Path, headers: Dict[str, str]) -> None:
        _, content = self._request("POST", bucket, key, query={"uploads": ""}, headers=headers)
        upload = next(it.text or "" for it in ElementTree.fromstring(content).iter() if _name(it) == "UploadId")
        try:
            tags = []
            size = path.stat().st_size
            part = max(PART, -(-size // 9_000))
            for number, start in enumerate(range(0, size, part), start=1):
                query = {"partNumber": str(number), "uploadId": upload}
                span = (start, min(part, size - start))
                found: Dict[str, str] = {}
                self._request("PUT", bucket, key, query=query, body=path, span=span, answer=found)
                tags.append(f"<Part><PartNumber>{number}</PartNumber><ETag>{found.get('etag', '')}</ETag></Part>")
            done = f"<CompleteMultipartUpload>{''.join(tags)}</CompleteMultipartUpload>".encode()
            _, content = self._request("POST", bucket, key, query={"uploadId": upload}, body=done)
            if b"<Error>" in content:  # S3 reports this error with status 200
                raise S3Error(f"s3://{bucket}/{key} could not be put together from its parts")
        except BaseException:
            with contextlib.suppress(S3Error, OSError, http.client.HTTPException):  # the first error is reported
                self._send_once("DELETE", bucket, key, {"uploadId": upload}, b"", None, {}, None, None)
            raise

    # --- a request ---------------------------------------------------------------------------------------

    def _request(
        self,
        method: str,
        bucket: str,
        key: str,
        *,
        query: Optional[Dict[str, str]] = None,
        body: Body = b"",
        span: Optional[Tuple[int, int]] = None,
        headers: Optional[Dict[str, str]] = None,
        into: Optional[Path] = None,
        answer: Optional[Dict[str, str]] = None,
        missing: bool = False,
        exists: bool = False,
        most: Optional[int] = None,
    ) -> Tuple[int, bytes]:
        """Send a request in up to `TRIES` tries; raise S3Error if there is no answer, or the answer is an error.

        :param span: the part of the file that is sent: offset and length in bytes.
        :param into: the file for the content; None: the content is returned.
        :param answer: a mapping that gets the answer's headers.
        :param missing: whether 404 is no error.
        :param exists: whether 409 and 412 are no errors: the object exists, or another write is in progress.
        :param most: bytes that the content may have; None: no limit.
        """
        fine = {200, 204, 206} | ({404} if missing else set()) | ({409, 412} if exists else set())
        description, last = f"{method} s3://{bucket}/{key}", S3Error("")
        for number in range(TRIES):
            if number:
                pause(number)
            try:
                status, found, content = self._send_once(
                    method, bucket, key, query or {}, body, span, headers or {}, into, most
                )
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, OSError) and error.filename is not None:
                    raise  # an error of a local file, not of the network
                last = S3Error(f"{description}: {type(error).__name__}")
                continue
            if status in fine:
                if answer is not None:
                    answer.update(found)
                return status, content
            last = S3Error(f"{description}: {status} {_code_of(content)}", status)
            if status < 500 and status not in (408, 429) and not _is_transient(content):
                break
        raise last

    def _send_once(
        self,
        method: str,
        bucket: str,
        key: str,
        query: Dict[str, str],
        body: Body,
        span: Optional[Tuple[int, int]],
        headers: Dict[str, str],
        into: Optional[Path],
        most: Optional[int],
    ) -> Tuple[int, Dict[str, str], bytes]:
        """Send a request in one try. Return the status, the headers (names in lower case) and the content."""
        secure, host, path = self._address(bucket, key)
        text = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(query.items()))
        digest = UNSIGNED if isinstance(body, Path) else hashlib.sha256(body).hexdigest()
        sent = signed(
            method, host, path, text, {**headers, "x-amz-content-sha256": digest}, self._credentials.get(), self._region
        )
        connection = (
            http.client.HTTPSConnection(host, timeout=TIMEOUT, context=self._tls)
            if secure
            else http.client.HTTPConnection(host, timeout=TIMEOUT)
        )
        try:
            with _Opened(body, span) as (source, length):
                sent["content-length"] = str(length)
                connection.request(method, f"{path}?{text}" if text else path, body=source, headers=sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            if into is not None and answer.status == 200:
                _save(answer, into)
                return answer.status, found, b""
            if most is None or answer.status != 200:  # the body of an error may be longer
                return answer.status, found, answer.read()
            content = answer.read(most + 1)
            if len(content) > most:
                raise S3Error(f"s3://{bucket}/{key} has more than {most} bytes")
            return answer.status, found, content
        finally:
            connection.close()

    def _address(self, bucket: str, key: str) -> Tuple[bool, str, str]:
        """Return whether TLS is used, the host, and the path."""
        path = "/" + urllib.parse.quote(key, safe="/-_.~")
        if self._endpoint:
            parts = urllib.parse.urlsplit(self._endpoint)
            return parts.scheme == "https", parts.netloc, f"/{bucket}{path}"
        suffix = "amazonaws.com.cn" if self._region.startswith("cn-") else "amazonaws.com"
        if "." in bucket:  # no certificate matches a host with dots in the bucket
            return True, f"s3.{self._region}.{suffix}", f"/{bucket}{path}"
        return True, f"{bucket}.s3.{self._region}.{suffix}", path


def signed(
    method: str,
    host: str,
    path: str,
    query: str,
    headers: Dict[str, str],
    credentials: Credentials,
    region: str,
    now: Optional[datetime] = None,
) -> Dict[str, str]:
    """Return the headers of a request, with its signature.

    :param query: the query text, sorted and quoted.
    :param headers: the headers to sign, with the digest of the body as `x-amz-content-sha256`.
    """
    at = (now or datetime.now(timezone.utc)).strftime("%Y%m%dT%H%M%SZ")
    sent = {**headers, "host": host, "x-amz-date": at}
    if credentials.token:
        sent["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(sent))
    lines = "".join(f"{name}:{sent[name].strip()}\n" for name in sorted(sent))
    canonical = "\n".join((method, path, query, lines, names, sent["x-amz-content-sha256"]))
    scope = f"{at[:8]}/{region}/s3/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", at, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{credentials.secret}".encode()
    for part in (at[:8], region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    sent["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return sent


class _Opened:
    """The body of a request and its length: bytes, a file, or a part of a file."""

    def __init__(self, body: Body, span: Optional[Tuple[int, int]]) -> None:
        if isinstance(body, bytes):
            self._file: IO[bytes] = io.BytesIO(body)
            self._length = len(body)
            return
        self._file = body.open("rb")
        start, self._length = span or (0, os.fstat(self._file.fileno()).st_size)
        self._file.seek(start)

    def __enter__(self) -> Tuple["Iterator[bytes]", int]:
        return self._blocks(), self._length

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def _blocks(self) -> Iterator[bytes]:
        left = self._length
        while left:
            block = self._file.read(min(BLOCK, left))
            # If the file became shorter, send zeros up to the announced length. The next sync sends the file again.
            block = block or b"\0" * min(BLOCK, left)
            left -= len(block)
            yield block


def _save(answer: http.client.HTTPResponse, target: Path) -> None:
    """Write an answer to a file, which appears when it is complete."""
    expected = answer.length
    partial = target.with_name(target.name + ".part")
    written = 0
    with partial.open("wb") as file:
        while True:
            block = answer.read(BLOCK)
            if not block:
                break
            file.write(block)
            written += len(block)
    if expected is not None and written != expected:
        raise http.client.IncompleteRead(b"", expected - written)
    partial.replace(target)


def pause(number: int) -> None:
    """Wait before another try, for a random time up to 0.1 s * 2**number, and at most 10 s."""
    time.sleep(random.uniform(0.05, min(10.0, 0.1 * 2**number)))


def split(uri: str) -> Tuple[str, str]:
    """Return bucket and key of an address s3://bucket/key."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise S3Error(f"{uri} is not an address of the form s3://bucket/key")
    return bucket, key


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="-_.~")


def _name(element: "ElementTree.Element") -> str:
    return element.tag.rpartition("}")[2]


def _code_of(content: bytes) -> str:
    try:
        return next((it.text or "" for it in ElementTree.fromstring(content).iter() if _name(it) == "Code"), "")
    except ElementTree.ParseError:
        return ""


def _is_transient(content: bytes) -> bool:
    """Return whether a refused request may succeed later."""
    return _code_of(content) in ("RequestTimeout", "SlowDown", "RequestTimeTooSkewed", "ExpiredToken")
