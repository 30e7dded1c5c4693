"""`smq doctor`: each thing that can be wrong is made to go wrong, and told with what to do about it."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from api_contract import VERSION
from sagemaker_queue.cli import main
from sagemaker_queue.cli.commands.doctor import lines
from sagemaker_queue.workflows.doctor import network
from sagemaker_queue.workflows.doctor.examination import CHECKS
from sagemaker_queue.workflows.doctor.findings import FAILED, OK, SKIPPED, WARNED, Finding, failed
from sagemaker_queue.workflows.doctor.network import Address, check_clock, check_connection, check_dns
from tests.client.conftest import ScriptedServer, serving
from tests.client.samples import refused

ANN = "arn:aws:sts::123456789012:assumed-role/AWSReservedSSO_research_0123456789abcdef/ann"
ROLE = "arn:aws:iam::123456789012:role/training"
SECONDS = network.SECONDS  # of the product; the tests have more patience
OWN = "https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/prod"
OF_ENDPOINT = "https://vpce-0123-abcd.execute-api.us-east-1.vpce.amazonaws.com/prod"
WHO = {
    **{"owner": ANN, "admin": False, "appliesPolicies": True},
    **{
        "allowedRoleArns": ["arn:aws:iam::123456789012:role/train*"],
        "queueVersion": f"{VERSION.partition('.')[0]}.99.9",
    },
}
IDENTITY = (
    '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
    f"<Arn>{ANN}</Arn><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"
)


def aws_error(code: str) -> str:
    """As STS and IAM say it."""
    return f"<ErrorResponse><Error><Code>{code}</Code><Message>it says so</Message></Error></ErrorResponse>"


def gateway(error_type: str, message: str = "no") -> tuple[int, object, dict[str, str]]:
    """A refusal of API Gateway."""
    return 403, {"message": message}, {"x-amzn-ErrorType": error_type}


@dataclass
class Doctor:
    """What `smq doctor` says."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> dict[str, Finding]:
        code = main([*arguments, "doctor", "--json"])
        told = json.loads(self.capsys.readouterr().out)
        found = {check["check"]: Finding(**check) for check in told["checks"]}
        assert tuple(found) == CHECKS
        broken = [finding for finding in found.values() if finding.status == FAILED]
        assert (code, told["healthy"]) == ((1, False) if broken else (0, True))
        for finding in found.values():
            assert finding.status in (OK, WARNED, FAILED, SKIPPED)
            assert bool(finding.remedy) == (finding.status in (WARNED, FAILED))
            assert "\n" not in finding.message + (finding.remedy or "")
        return found


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(capsys)


@pytest.fixture
def sts(sts: ScriptedServer) -> ScriptedServer:
    sts.always_answers(200, IDENTITY)
    return sts


@pytest.fixture
def queue(server: ScriptedServer, address: None, sts: ScriptedServer) -> ScriptedServer:
    """A queue that answers an unsigned request, as the clock is compared by it, and then who calls."""
    server.answers(*gateway("MissingAuthenticationTokenException", "Missing Authentication Token"))
    return server


def configured(home: Path, **settings: object) -> None:
    path = home / ".config/sagemaker-queue/config.toml"
    path.parent.mkdir(parents=True)
    values = "\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items())
    path.write_text(f'default = "research"\n[profiles.research]\n{values}\n')


def named(monkeypatch: pytest.MonkeyPatch, *ips: str) -> None:
    """Let every name be found at these addresses."""
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 443)) for ip in ips]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)


# --- all is well --------------------------------------------------------------------------------------


def test_all_is_well(
    server: ScriptedServer, sts: ScriptedServer, doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without AWS's plugin for smq shell
    configured(tmp_path, url=server.url, role=ROLE)
    server.answers(200, {})
    server.answers(200, WHO)
    found = doctor()
    assert [check for check, finding in found.items() if finding.status != OK] == ["bucket", "shell"]
    assert "the default profile research" in found["configuration"].message
    assert ANN in found["credentials"].message and ANN in found["access"].message
    assert [request.path for request in server.received] == ["/prod", "/prod/whoami"]
    assert "Authorization" not in server.received[0].headers


def test_it_is_read_by_people(queue: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    queue.answers(200, {**WHO, "queueVersion": "9.0.0"})
    assert main(["doctor"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("✓ configuration  The queue is")
    assert told[7].startswith(f"✗ version        The client is {VERSION}, the queue 9.0.0")
    assert (
        told[8] == f"{' ' * 17}Install the client from the checkout that the queue was deployed from (version 9.0.0)."
    )
    assert told[9].startswith("– role ")
    assert lines(failed("dns", "a", "b"), {FAILED: "[!!]"}, 3) == ["[!!] dns  a", "          b"]


def test_signs_that_the_output_cannot_show_are_replaced(queue: ScriptedServer) -> None:
    queue.answers(200, WHO)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "sagemaker_queue", "doctor"]
    told = subprocess.run(command, env=environment, capture_output=True, check=True).stdout.decode("ascii")
    assert told.startswith("[ok] configuration  ")
    assert "\n[--] role  " in told


# --- configuration ------------------------------------------------------------------------------------


def test_no_queue_is_configured(doctor: Doctor) -> None:
    found = doctor()
    assert "No queue is configured" in found["configuration"].message
    without_queue = {"configuration", "credentials", "shell"}
    assert {finding.status for check, finding in found.items() if check not in without_queue} == {SKIPPED}
    assert "credentials" in found["credentials"].message and "Not checked" not in found["credentials"].message
    assert "smq shell" in found["shell"].message
    assert main(["doctor"]) == 1
    page = doctor.capsys.readouterr().out
    assert page.count("Not checked") == 1
    assert "(dns, connection, clock, access, identity, version, role, bucket)" in page


@pytest.mark.parametrize(
    ("settings", "message", "remedy"),
    [
        ({"url": OWN.replace("https", "http")}, "begins with http:", "smq config set url"),
        ({"url": OWN.replace("/prod", "")}, "has no stage", "/prod"),
        ({"url": OWN.replace("a1b2c3d4e5", "my_queue")}, "is not an API Gateway address", "<api-id>"),
        ({"url": OF_ENDPOINT}, "no api_id says which one", "api_id"),
        ({"url": OWN, "region": "eu-west-1"}, "is in us-east-1, and the profile's region is eu-west-1", "region"),
        (
            {"url": "https://ann:s3cret@queue.example/prod"},
            "queue.example has a user or password in it",
            "smq config set url",
        ),
        ({"url": OWN, "regoin": "us-east-1"}, "unknown setting 'regoin'", "smq config set url"),
    ],
)
def test_an_address_to_which_no_request_could_go(
    settings: dict[str, str], message: str, remedy: str, doctor: Doctor, tmp_path: Path
) -> None:
    configured(tmp_path, **settings)
    finding = doctor()["configuration"]
    assert finding.status == FAILED
    assert message in finding.message
    assert remedy in str(finding.remedy)
    assert "s3cret" not in finding.message


def test_where_the_address_comes_from_is_told(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ScriptedServer
) -> None:
    server.always_hangs_up()
    configured(tmp_path, url=server.url)
    assert "from the default profile research of" in doctor()["configuration"].message
    assert "from the profile research (--profile) of" in doctor("-c", "research")["configuration"].message
    monkeypatch.setenv("SAGEMAKER_QUEUE_PROFILE", "research")
    assert "(SAGEMAKER_QUEUE_PROFILE)" in doctor()["configuration"].message
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", server.url)
    assert "from SAGEMAKER_QUEUE_URL" in doctor()["configuration"].message
    assert "from --url" in doctor("--url", server.url)["configuration"].message


# --- the way ------------------------------------------------------------------------------------------


def test_a_name_that_nobody_knows(doctor: Doctor, sts: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    found = doctor("--url", OWN)
    assert "cannot be resolved" in found["dns"].message
    assert "VPC endpoint" in str(found["dns"].remedy)
    assert [found[check].status for check in ("connection", "clock", "access", "version")] == [SKIPPED] * 4


@pytest.mark.parametrize(
    ("url", "ip", "status"),
    [
        (OWN, "3.5.7.9", FAILED),
        (OWN, "10.0.3.4", OK),
        (OWN.replace(".execute", "-vpce-0123.execute"), "10.0.3.4", OK),
        (OF_ENDPOINT, "10.0.3.4", OK),
        ("https://queue.example/prod", "3.5.7.9", OK),
    ],
)
def test_a_private_api_is_not_at_a_public_address(
    url: str, ip: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(monkeypatch, ip)
    finding = check_dns(Address.of(url))
    assert (finding.status, ip in finding.message) == (status, True)
    if status == FAILED:
        assert "https://<api-id>-<vpce-id>.execute-api" in str(finding.remedy)


def test_nobody_listens(doctor: Doctor) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        found = doctor("--url", f"http://127.0.0.1:{closed.getsockname()[1]}/prod")
    assert "cannot be reached" in found["connection"].message
    assert found["access"].message == "Not checked, because the step connection failed."


def test_a_firewall_swallows_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object, **__: object) -> Any:
        raise socket.timeout("timed out")

    monkeypatch.setattr(network, "SECONDS", SECONDS)
    monkeypatch.setattr(socket, "create_connection", silent)
    finding = check_connection(Address.of(OWN))
    assert "does not answer within 5 s" in finding.message
    assert "security group" in str(finding.remedy)


def test_a_server_without_tls(server: ScriptedServer) -> None:
    finding = check_connection(Address.of(server.url.replace("http", "https")))
    assert finding.status == FAILED
    assert "TLS" in finding.message


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    with tls_server(tmp_path) as port:
        finding = check_connection(Address.of(f"https://localhost:{port}/prod"))
    assert "The certificate of localhost" in finding.message
    assert "REQUESTS_CA_BUNDLE" in str(finding.remedy)


def test_a_proxy_is_named_and_its_password_is_not(monkeypatch: pytest.MonkeyPatch, doctor: Doctor) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://ann:s3cret@127.0.0.1:{port}")
        monkeypatch.setenv("NO_PROXY", "")
        found = doctor("--url", OWN)
    assert "the proxy 127.0.0.1" in found["connection"].message
    assert "NO_PROXY" in str(found["connection"].remedy)
    assert "s3cret" not in str(found)


def test_a_name_that_no_host_can_have_cannot_be_resolved(monkeypatch: pytest.MonkeyPatch, doctor: Doctor) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy..example:80")
    found = doctor("--url", OWN)["dns"]
    assert found.status == FAILED and "proxy..example cannot be resolved" in found.message
    assert "Correct HTTPS_PROXY" in str(found.remedy)


# --- the clock ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ahead", "status", "word"), [(400, FAILED, "fast"), (-400, FAILED, "slow"), (100, OK, "off")])
def test_the_clock_here_is_compared(server: ScriptedServer, ahead: float, status: str, word: str) -> None:
    server.answers(200, {})
    finding = check_clock(server.url, lambda: time.time() + ahead)
    assert finding.status == status
    assert word in finding.message


def test_what_speaks_no_http(doctor: Doctor, server: ScriptedServer, address: None) -> None:
    server.always_hangs_up()
    assert "does not speak HTTP" in doctor()["clock"].message


# --- the caller ---------------------------------------------------------------------------------------


def test_there_are_no_credentials(queue: ScriptedServer, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    found = doctor()
    assert found["credentials"].message == "There are no AWS credentials."
    assert "aws sso login" in str(found["credentials"].remedy)
    assert found["access"].message == "Not checked, because the step credentials failed."


def test_an_aws_profile_that_is_not_there(server: ScriptedServer, doctor: Doctor, tmp_path: Path) -> None:
    server.answers(200, {})
    configured(tmp_path, url=server.url, aws_profile="reserach")
    assert "reserach" in doctor()["credentials"].message


@pytest.mark.usefixtures("refused_role")
def test_a_role_that_aws_refuses(server: ScriptedServer, address: None, doctor: Doctor) -> None:
    server.answers(*gateway("MissingAuthenticationTokenException"))
    found = doctor()
    assert "not authorized to perform: sts:AssumeRole" in found["credentials"].message
    assert found["access"].status == SKIPPED


@pytest.mark.parametrize(
    ("code", "message"), [("ExpiredToken", "have expired"), ("InvalidClientTokenId", "InvalidClientTokenId")]
)
def test_credentials_that_aws_refuses(
    queue: ScriptedServer, sts: ScriptedServer, doctor: Doctor, code: str, message: str
) -> None:
    sts.answers(403, aws_error(code))
    found = doctor()
    assert message in found["credentials"].message
    assert found["access"].status == SKIPPED


def test_where_sts_cannot_be_asked_the_queue_is(
    queue: ScriptedServer, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a VPC without a way out, only the queue's endpoint may answer."""
    queue.answers(200, WHO)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{closed.getsockname()[1]}")
        found = doctor()
    assert (found["credentials"].status, found["access"].status) == (SKIPPED, OK)


@pytest.mark.parametrize(
    ("answer", "message", "remedy"),
    [
        (gateway("AccessDeniedException", f"User: {ANN} is not authorized"), "not authorized", "execute-api:Invoke on"),
        (gateway("AccessDeniedException", "not authorized with an explicit deny"), "explicit deny", "VpcEndpointIds"),
        (gateway("ForbiddenException", "Forbidden"), "api_id", "address"),
        (gateway("InvalidSignatureException", "Signature expired\n\ns3cret"), "Signature expired", "clock"),
        (gateway("UnrecognizedClientException", "The security token is invalid"), "invalid", "account"),
        ((403, refused("Forbidden", "The request is not signed."), {}), "not signed", "the operator of the queue"),
    ],
)
def test_the_queue_or_api_gateway_says_no(
    queue: ScriptedServer, doctor: Doctor, answer: Any, message: str, remedy: str
) -> None:
    queue.answers(*answer)
    queue.always_answers(403, {"message": "no"})
    found = doctor()
    assert message in found["access"].message
    assert remedy in str(found["access"].remedy)
    assert "s3cret" not in str(found)
    assert found["version"].message == "Not checked, because the step access failed."


def test_a_queue_that_is_older_than_the_client(queue: ScriptedServer, doctor: Doctor) -> None:
    queue.answers(*gateway("MissingAuthenticationTokenException", "Missing Authentication Token"))
    queue.answers(200, {"version": 0, "policy": {}})
    found = doctor()
    assert "older than this client" in found["access"].message
    assert [request.path for request in queue.received][1:] == ["/prod/whoami", "/prod/policy"]


def test_an_administrator_and_somebody_who_may_not_apply_policies(queue: ScriptedServer, doctor: Doctor) -> None:
    queue.answers(200, {**WHO, "admin": True})
    assert "an administrator." in doctor()["access"].message
    queue.answers(200, {})
    queue.answers(200, {**WHO, "appliesPolicies": False})
    assert "may not apply policies" in doctor()["access"].message


def test_a_queue_that_fails(queue: ScriptedServer, doctor: Doctor) -> None:
    queue.always_answers(500, refused("InternalError", "The queue met an error of its own."))
    found = doctor()
    assert "error of its own" in found["access"].message


# --- what jobs need -----------------------------------------------------------------------------------


@pytest.fixture
def iam(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with serving() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_IAM", server.url)
        server.always_answers(403, aws_error("AccessDenied"))
        yield server


@pytest.fixture(autouse=True)
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """S3, in which no bucket exists."""
    with serving() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        server.always_answers(404, "")
        yield server


@pytest.fixture
def job_defaults(
    server: ScriptedServer, sts: ScriptedServer, iam: ScriptedServer, tmp_path: Path
) -> Callable[..., None]:
    def configure(**settings: object) -> None:
        server.answers(200, {})
        server.answers(200, WHO)
        configured(tmp_path, url=server.url, region="eu-west-1", **settings)

    return configure


def test_a_role_that_the_queue_does_not_pass_on(job_defaults: Callable[..., None], doctor: Doctor) -> None:
    job_defaults(role="arn:aws:iam::123456789012:role/other")
    finding = doctor()["role"]
    assert "does not pass arn:aws:iam::123456789012:role/other on" in finding.message
    assert "role/train*" in str(finding.remedy) and "AllowedRoleArns" in str(finding.remedy)


def test_a_role_that_is_not_there(job_defaults: Callable[..., None], doctor: Doctor, iam: ScriptedServer) -> None:
    job_defaults(role=ROLE)
    iam.answers(404, aws_error("NoSuchEntity"))
    assert doctor()["role"].message == f"There is no role {ROLE}."


def test_a_role_that_one_may_not_look_at_is_believed(job_defaults: Callable[..., None], doctor: Doctor) -> None:
    job_defaults(role=ROLE)
    assert doctor()["role"].status == OK


@pytest.mark.parametrize(
    ("status", "headers", "message", "remedy"),
    [
        (404, {}, "There is no bucket sets", "Create it"),
        (403, {"x-amz-bucket-region": "eu-west-1"}, "You may not use the bucket sets", "s3:PutObject"),
        (
            403,
            {"x-amz-bucket-region": "us-east-2"},
            "The bucket sets is in us-east-2, and jobs run in eu-west-1",
            "Use",
        ),
        (200, {"x-amz-bucket-region": "us-east-2"}, "The bucket sets is in us-east-2", "Use a bucket in eu-west-1"),
        (503, {}, "S3 answers 503", "later"),
        (200, {"x-amz-bucket-region": "eu-west-1"}, "You may list, read and write the bucket sets.", "None"),
    ],
)
def test_the_bucket_is_looked_at(
    job_defaults: Callable[..., None],
    doctor: Doctor,
    s3: ScriptedServer,
    status: int,
    headers: dict[str, str],
    message: str,
    remedy: str,
) -> None:
    job_defaults(bucket="sets")
    s3.answers(status, "", headers)
    finding = doctor()["bucket"]
    assert message in finding.message
    assert remedy in str(finding.remedy)
    assert s3.received[0].method == "HEAD"


@pytest.mark.parametrize(
    ("reading", "writing", "needed"),
    [
        (403, 403, "s3:GetObject and s3:PutObject on it"),
        (404, 403, "needs s3:PutObject on it"),
        (403, 400, "needs s3:GetObject on it"),
        (404, 400, None),
    ],
)
def test_the_rights_on_the_bucket_are_checked(
    job_defaults: Callable[..., None],
    doctor: Doctor,
    s3: ScriptedServer,
    reading: int,
    writing: int,
    needed: str | None,
) -> None:
    job_defaults(bucket="sets")
    s3.answers(200, "", {"x-amz-bucket-region": "eu-west-1"})
    s3.answers(reading, "<Error><Code>NoSuchKey</Code></Error>")
    s3.answers(writing, "<Error><Code>BadDigest</Code></Error>")
    finding = doctor()["bucket"]
    assert (finding.status, needed in str(finding.remedy) if needed else finding.remedy) == (
        (FAILED, True) if needed else (OK, None)
    )
    assert [request.method for request in s3.received] == ["HEAD", "GET", "PUT"]


@pytest.mark.parametrize(
    ("status", "found", "message"),
    [(404, WARNED, "It does not exist yet"), (403, FAILED, "You may not use the bucket"), (200, OK, "You may list")],
)
def test_without_a_bucket_the_default_bucket_is_checked(
    job_defaults: Callable[..., None], doctor: Doctor, s3: ScriptedServer, status: int, found: str, message: str
) -> None:
    job_defaults()
    s3.answers(status, "", {"x-amz-bucket-region": "eu-west-1"})
    finding = doctor()["bucket"]
    assert finding.status == found and message in finding.message
    assert "sagemaker-eu-west-1-123456789012" in finding.message
    assert found == OK or "smq config set bucket NAME" in str(finding.remedy)


def test_s3_does_not_answer(job_defaults: Callable[..., None], doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    job_defaults(bucket="sets")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{closed.getsockname()[1]}")
        finding = doctor()["bucket"]
    assert "gateway endpoint for S3" in str(finding.remedy)


def test_sts_does_not_answer(
    job_defaults: Callable[..., None], doctor: Doctor, sts: ScriptedServer, s3: ScriptedServer
) -> None:
    job_defaults(bucket="sets")
    sts.always_hangs_up()
    finding = doctor()["bucket"]
    assert "STS" in finding.message and "smq config set account" in str(finding.remedy)
    assert "S3" not in finding.message + str(finding.remedy) and not s3.received


@pytest.mark.parametrize("setting", [{"account": "123456789012"}, {"bucket_owners": "sets=any"}])
def test_a_known_owner_of_the_bucket_needs_no_sts(
    job_defaults: Callable[..., None], doctor: Doctor, sts: ScriptedServer, setting: dict[str, str]
) -> None:
    job_defaults(bucket="sets", **setting)
    sts.always_hangs_up()
    assert doctor()["bucket"].message == "There is no bucket sets."


def tls_server(folder: Path) -> Any:
    """A server whose certificate is its own work."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "server.pem"
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return _listening(context)


@contextmanager
def _listening(context: ssl.SSLContext) -> Iterator[int]:
    """Its port; it shakes hands once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def shake_hands() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                context.wrap_socket(connection, server_side=True)

        thread = threading.Thread(target=shake_hands, daemon=True)  # it waits for ever if nothing connects
        thread.start()
        yield listener.getsockname()[1]
        thread.join()
