"""Signatures and encryption between queue and agent, against other implementations and against forgeries."""

import base64
import hashlib
import hmac
import json
import subprocess
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dh, padding, rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from job_queue.carrier_agent import seal
from tests.carrier_agent.test_pythons import interpreter

MESSAGE = b'{"do": "assign"}'
DIGEST = hashlib.sha256(MESSAGE).digest()
INFO = bytes.fromhex("3031300d060960864801650304020105000420")  # of SHA-256
LENGTH = 256  # bytes of a modulus
KEY = b"k" * 32
PACKAGE = Path(seal.__file__).parents[1]


@cache
def key_pair() -> RSAPrivateKey:
    return rsa.generate_private_key(65_537, 2048)


def modulus() -> int:
    return key_pair().public_key().public_numbers().n


def signature_of(encoded: bytes) -> bytes:
    """Return the signature that contains an encoded message, whatever the message is."""
    private = key_pair().private_numbers().d
    return pow(int.from_bytes(encoded, "big"), private, modulus()).to_bytes(LENGTH, "big")


# --- signatures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [b"", b"a", MESSAGE, b"x" * 100_000])
@pytest.mark.parametrize("bits", [2048, 3072])
def test_signatures_of_another_implementation_are_valid(message: bytes, bits: int) -> None:
    pair = key_pair() if bits == 2048 else rsa.generate_private_key(65_537, bits)
    signature = pair.sign(message, padding.PKCS1v15(), hashes.SHA256())
    number = pair.public_key().public_numbers().n
    assert seal.is_signed(message, signature, number)
    assert not seal.is_signed(message + b".", signature, number)


def test_a_padding_is_that_of_another_implementation() -> None:
    signature = key_pair().sign(MESSAGE, padding.PKCS1v15(), hashes.SHA256())
    assert pow(int.from_bytes(signature, "big"), 65_537, modulus()).to_bytes(LENGTH, "big") == seal.padded(
        MESSAGE, LENGTH
    )
    assert signature_of(seal.padded(MESSAGE, LENGTH)) == signature
    with pytest.raises(ValueError, match="too short"):
        seal.padded(MESSAGE, 61)


@pytest.mark.attack
@pytest.mark.parametrize("kind", [hashes.SHA1(), hashes.SHA224(), hashes.SHA384(), hashes.SHA512()])  # noqa: S303
def test_another_digest_is_refused(kind: hashes.HashAlgorithm) -> None:
    assert not seal.is_signed(MESSAGE, key_pair().sign(MESSAGE, padding.PKCS1v15(), kind), modulus())


@pytest.mark.attack
def test_another_padding_scheme_is_refused() -> None:
    scheme = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
    assert not seal.is_signed(MESSAGE, key_pair().sign(MESSAGE, scheme, hashes.SHA256()), modulus())


MALFORMED = {
    "garbage after the digest": b"\x00\x01" + b"\xff" * 8 + b"\x00" + INFO + DIGEST + b"\x01" * (LENGTH - 62),
    "zeros after the digest": b"\x00\x01" + b"\xff" * 8 + b"\x00" + INFO + DIGEST + b"\x00" * (LENGTH - 62),
    "garbage in the padding": b"\x00\x01" + b"\xff" * (LENGTH - 55) + b"\xfe\x00" + INFO + DIGEST,
    "no padding": b"\x00" * (LENGTH - 32) + DIGEST,
    "padding of zeros": b"\x00\x01" + b"\x00" * (LENGTH - 53) + INFO + DIGEST,
    "block type 0": b"\x00\x00" + b"\xff" * (LENGTH - 54) + b"\x00" + INFO + DIGEST,
    "block type 2": b"\x00\x02" + b"\xff" * (LENGTH - 54) + b"\x00" + INFO + DIGEST,
    "no separator": b"\x00\x01" + b"\xff" * (LENGTH - 53) + INFO + DIGEST,
    "no algorithm": b"\x00\x01" + b"\xff" * (LENGTH - 35) + b"\x00" + DIGEST,
    "no NULL parameter": b"\x00\x01" + b"\xff" * (LENGTH - 52) + b"\x00"
    + bytes.fromhex("302f300b0609608648016503040201" + "0420") + DIGEST,
    "long form of a length": b"\x00\x01" + b"\xff" * (LENGTH - 55) + b"\x00"
    + bytes.fromhex("308131300d060960864801650304020105000420") + DIGEST,
    "garbage in the parameters": b"\x00\x01" + b"\xff" * 8 + b"\x00"
    + bytes.fromhex("3081f23081cd0609608648016503040201" + "0481bf") + b"\x55" * 191 + b"\x04\x20" + DIGEST,
    "digest of another message": b"\x00\x01" + b"\xff" * (LENGTH - 54) + b"\x00" + INFO + b"\x00" * 32,
}  # fmt: skip


@pytest.mark.attack
@pytest.mark.parametrize("kind", sorted(MALFORMED))
def test_a_malformed_padding_is_refused(kind: str) -> None:
    encoded = MALFORMED[kind].ljust(LENGTH, b"\x00")[:LENGTH]
    assert encoded != seal.padded(MESSAGE, LENGTH)
    assert not seal.is_signed(MESSAGE, signature_of(encoded), modulus())


@pytest.mark.attack
def test_a_signature_of_another_length_or_beyond_the_modulus_is_refused() -> None:
    signature = key_pair().sign(MESSAGE, padding.PKCS1v15(), hashes.SHA256())
    beyond = int.from_bytes(signature, "big") + modulus()
    assert not seal.is_signed(MESSAGE, beyond.to_bytes(LENGTH + 1, "big"), modulus())
    for other in (b"", b"\x00", signature[:-1], signature[1:], b"\x00" + signature, signature + b"\x00"):
        assert not seal.is_signed(MESSAGE, other, modulus())
    for number in (0, 1, modulus() - 1, modulus(), (1 << 8 * LENGTH) - 1):
        assert not seal.is_signed(MESSAGE, number.to_bytes(LENGTH, "big"), modulus())


@pytest.mark.attack
def test_a_signature_that_is_equal_modulo_the_modulus_is_refused() -> None:
    messages = (b"message %d" % number for number in range(1_000))
    signed = ((message, key_pair().sign(message, padding.PKCS1v15(), hashes.SHA256())) for message in messages)
    sums = ((message, int.from_bytes(signature, "big") + modulus()) for message, signature in signed)
    message, number = next((message, number) for message, number in sums if number < 1 << 8 * LENGTH)
    assert not seal.is_signed(message, number.to_bytes(LENGTH, "big"), modulus())


@pytest.mark.attack
def test_every_changed_bit_of_a_signature_is_refused() -> None:
    signature = key_pair().sign(MESSAGE, padding.PKCS1v15(), hashes.SHA256())
    for place in range(0, LENGTH, 5):
        changed = bytearray(signature)
        changed[place] ^= 1 << place % 8
        assert not seal.is_signed(MESSAGE, bytes(changed), modulus())


# --- agreement on a key ------------------------------------------------------------------------------


def test_the_group_is_that_of_the_rfc() -> None:
    assert seal.PRIME.bit_length() == 2048
    assert 2**2048 - 2**1984 - 1 + 2**64 * (bits_of_pi(1918) + 124_476) == seal.PRIME
    assert is_probably_prime(seal.PRIME)
    assert is_probably_prime((seal.PRIME - 1) // 2)


def bits_of_pi(places: int) -> int:
    """Return the floor of 2^places * pi, by Machin's formula."""
    unit = 1 << places + 64

    def arctan(inverse: int) -> int:
        power = total = unit // inverse
        divisor = 1
        while power:
            power //= -inverse * inverse
            divisor += 2
            total += power // divisor
        return total

    return 4 * (4 * arctan(5) - arctan(239)) >> 64


def is_probably_prime(number: int) -> bool:
    """Return the verdict of Miller and Rabin's test with twelve bases."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        found = pow(base, odd, number)
        if found not in (1, number - 1) and not any(
            (found := found * found % number) == number - 1 for _ in range(twos - 1)
        ):
            return False
    return True


def test_both_sides_compute_the_same_key() -> None:
    one, other = seal.private_number(), seal.private_number()
    assert one.bit_length() == other.bit_length() == 256
    key = seal.shared_key(one, seal.public_number(other), "c")
    assert key == seal.shared_key(other, seal.public_number(one), "c")
    assert len(key) == 32
    assert key != seal.shared_key(one, seal.public_number(other), "d")
    assert key != seal.shared_key(one, seal.public_number(one), "c")


@pytest.mark.filterwarnings("ignore:Diffie-Hellman over finite fields")
def test_the_secret_is_that_of_another_implementation() -> None:
    group = dh.DHParameterNumbers(seal.PRIME, seal.GENERATOR)
    theirs = group.parameters().generate_private_key()
    private = seal.private_number()
    public = dh.DHPublicNumbers(seal.public_number(private), group).public_key()
    secret = theirs.exchange(public).rjust(256, b"\x00")
    key = seal.shared_key(private, theirs.public_key().public_numbers().y, "c")
    assert key == hmac.digest(b"c", secret, "sha256")


@pytest.mark.attack
@pytest.mark.parametrize("public", [-1, 0, 1, seal.PRIME - 1, seal.PRIME, seal.PRIME + 1, seal.PRIME + 2])
def test_a_number_that_gives_the_key_away_is_refused(public: int) -> None:
    with pytest.raises(ValueError, match="group"):
        seal.shared_key(seal.private_number(), public, "c")


# --- encryption and authentication -------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 100_000])
def test_a_sealed_text_is_opened(length: int) -> None:
    text = bytes(number % 256 for number in range(length))
    message = seal.sealed(KEY, text, "c/a/1")
    assert seal.opened(KEY, message, "c/a/1") == text
    assert message != seal.sealed(KEY, text, "c/a/1"), "each has a nonce of its own"


@pytest.mark.attack
def test_every_changed_byte_is_refused() -> None:
    content = base64.b64decode(seal.sealed(KEY, b"some request", "c/a/1"))
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        with pytest.raises(ValueError, match="changed"):
            seal.opened(KEY, base64.b64encode(changed).decode(), "c/a/1")
    for length in range(len(content)):
        with pytest.raises(ValueError, match="changed"):
            seal.opened(KEY, base64.b64encode(content[:length]).decode(), "c/a/1")
    with pytest.raises(ValueError, match="changed"):
        seal.opened(KEY, base64.b64encode(content + b"\x00").decode(), "c/a/1")


@pytest.mark.attack
@pytest.mark.parametrize("context", ["", "c/a/2", "c/b/1", "d/a/1", "c/a/1 ", "c/a/11"])
def test_a_text_for_another_context_is_refused(context: str) -> None:
    message = seal.sealed(KEY, b"some request", "c/a/1")
    with pytest.raises(ValueError, match="changed"):
        seal.opened(KEY, message, context)
    with pytest.raises(ValueError, match="changed"):
        seal.opened(b"l" * 32, message, "c/a/1")


@pytest.mark.attack
@pytest.mark.parametrize("message", ["", "=", "a", "AAAA", "not base64!", "\ud800", "\u0665" * 8, "A" * 99_999])
def test_a_text_that_was_never_sealed_is_refused(message: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (of base64, of UTF-8 or of seal)
        seal.opened(KEY, message, "c/a/1")


@pytest.mark.attack
def test_a_code_is_valid_for_one_text_one_context_and_one_key() -> None:
    code = seal.authentication(KEY, "text", "alive")
    assert seal.is_authentic(KEY, "text", "alive", code)
    assert not seal.is_authentic(KEY, "texts", "alive", code)
    assert not seal.is_authentic(KEY, "ext", "alivet", code)
    assert not seal.is_authentic(KEY, "text", "a/ended", code)
    assert not seal.is_authentic(b"l" * 32, "text", "alive", code)
    for other in ("", code[:-1], code + "0", code.upper(), "\ud800", "0" * 64):
        assert not seal.is_authentic(KEY, "text", "alive", other)


@pytest.mark.attack
def test_no_encrypted_text_is_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is empty and the nonce is text, so that a report can have the same content."""
    nonce = "n" * 16
    monkeypatch.setattr("job_queue.carrier_agent.seal.secrets.token_bytes", lambda count: nonce.encode())
    content = base64.b64decode(seal.sealed(KEY, b"", "alive"))
    assert content[:-32] == nonce.encode()
    assert seal.authentication(KEY, nonce, "alive") != content[-32:].hex()


@pytest.mark.attack
def test_a_context_ends_where_the_content_begins() -> None:
    assert seal.authentication(KEY, "b", "a") != seal.authentication(KEY, "", "ab")


@pytest.mark.attack
def test_a_sealed_text_shows_nothing_of_the_text() -> None:
    """A text of zeros is encrypted as the stream itself, which must not be zeros and must not repeat."""
    hidden = base64.b64decode(seal.sealed(KEY, bytes(96), "c/a/1"))[16:-32]
    assert len({bytes(32), hidden[:32], hidden[32:64], hidden[64:]}) == 4


def test_a_sealed_text_has_the_form_that_running_agents_know() -> None:
    """Agents that run may be older than the queue, so the form cannot change."""
    content = base64.b64decode(seal.sealed(KEY, bytes(64), "c/a/1"))
    nonce, hidden, mac = content[:16], content[16:-32], content[-32:]
    own = hmac.digest(KEY, b"encrypt", "sha256")
    assert hidden == b"".join(hmac.digest(own, nonce + bytes(7) + bytes([number]), "sha256") for number in range(2))
    own = hmac.digest(KEY, b"authenticate", "sha256")
    assert mac == hmac.digest(own, b"\x00\x00\x00\x05c/a/1" + nonce + hidden, "sha256")


# --- other versions of Python ------------------------------------------------------------------------

PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import seal
given = json.load(sys.stdin)
key = seal.shared_key(int(given["private"]), int(given["public"]), "c")
json.dump({
    "signed": seal.is_signed(given["message"].encode(), bytes.fromhex(given["signature"]), int(given["modulus"])),
    "forged": seal.is_signed(b"other", bytes.fromhex(given["signature"]), int(given["modulus"])),
    "opened": seal.opened(key, given["sealed"], "c/a/1").decode(),
    "sealed": seal.sealed(key, b"an answer", "c/a/2"),
    "code": seal.authentication(key, "text", "alive"),
}, sys.stdout)
"""


@pytest.mark.parametrize("minor", range(8, 15))
def test_every_python_computes_the_same(minor: int) -> None:
    python = interpreter(f"3.{minor}")
    if python is None:
        pytest.skip(f"this machine has no Python 3.{minor}")
    mine, theirs = seal.private_number(), seal.private_number()
    key = seal.shared_key(mine, seal.public_number(theirs), "c")
    given = {
        "private": str(theirs),
        "public": str(seal.public_number(mine)),
        "message": MESSAGE.decode(),
        "signature": key_pair().sign(MESSAGE, padding.PKCS1v15(), hashes.SHA256()).hex(),
        "modulus": str(modulus()),
        "sealed": seal.sealed(key, b"a request", "c/a/1"),
    }
    command = [python, "-c", PROGRAM, str(PACKAGE / "carrier_agent")]
    found = json.loads(
        subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True).stdout
    )
    assert (found["signed"], found["forged"], found["opened"]) == (True, False, "a request")
    assert seal.opened(key, found["sealed"], "c/a/2") == b"an answer"
    assert seal.is_authentic(key, "text", "alive", found["code"])
