"""Cryptography of the messages between the queue and an agent: RSA signatures, key agreement, and encryption.

`mailbox.py` defines the messages. `adapters/carriers/mailbox.py` signs the queue's orders (assign or stop a member).
This module uses only the standard library.

The agent verifies the signatures of orders, by an RSA key of the deployment (RFC 8017, RSASSA-PKCS1-v1_5 with SHA-256).
Queue and agent agree on a key that no other program has (Diffie-Hellman in group 14 of RFC 3526, exponents of 256
bits). Two keys are derived from the agreed key. One encrypts the request inside an assignment (HMAC-SHA256 in counter
mode). The other one authenticates these encrypted requests and the agent's reports (HMAC-SHA256).
"""

import base64
import hashlib
import hmac
import secrets

EXPONENT = 65_537  # the public exponent of every RSA key of AWS KMS
GENERATOR = 2
PRIME = int(
    "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404ddef9519b3cd3a431b"
    "302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7edee386bfb5a899fa5ae9f24117c4b1fe6"
    "49286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f83655d23dca3ad961c62f356208552bb9ed529077096966d"
    "670c354e4abc9804f1746c08ca18217c32905e462e36ce3be39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf695581718"
    "3995497cea956ae515d2261898fa051015728e5a8aacaa68ffffffffffffffff",
    16,
)
_DIGEST_INFO_PREFIX = bytes.fromhex("3031300d060960864801650304020105000420")  # for SHA-256: RFC 8017, section 9.2
_NONCE_BYTES, _MAC_BYTES = 16, 32
_PADDING_BYTES = 11  # of the shortest padding


def padded(message: bytes, length: int) -> bytes:
    """Encode a message by EMSA-PKCS1-v1_5 with SHA-256 (RFC 8017, section 9.2).

    :param length: bytes of the modulus, and so of the signature.
    :raises ValueError: the modulus is too short for a SHA-256 digest.
    """
    digest_info = _DIGEST_INFO_PREFIX + hashlib.sha256(message).digest()
    if length < len(digest_info) + _PADDING_BYTES:
        raise ValueError("the modulus is too short")
    return b"\x00\x01" + b"\xff" * (length - len(digest_info) - 3) + b"\x00" + digest_info


def is_signed(message: bytes, signature: bytes, modulus: int) -> bool:
    """Return whether a signature is valid. The whole padding is compared, so the padding cannot hide other data."""
    length = (modulus.bit_length() + 7) // 8
    number = int.from_bytes(signature, "big")
    if len(signature) != length or number >= modulus:
        return False
    found = pow(number, EXPONENT, modulus).to_bytes(length, "big")
    return hmac.compare_digest(found, padded(message, length))


def private_number() -> int:
    """Draw a secret exponent of 256 bits."""
    return secrets.randbits(256) | 1 << 255


def public_number(private: int) -> int:
    """Return the number that is sent to the other side, for `shared_key`."""
    return pow(GENERATOR, private, PRIME)


def shared_key(private: int, public: int, context: str) -> bytes:
    """Return the key of 32 bytes that both sides compute.

    :param public: the other side's number.
    :param context: binds the key to its purpose: the carrier's attempt.
    :raises ValueError: the number is outside of the group, or generates only a small subgroup.
    """
    if not 1 < public < PRIME - 1:
        raise ValueError("the number is not an element of the group")
    secret = pow(public, private, PRIME)
    return hmac.new(context.encode(), secret.to_bytes(256, "big"), hashlib.sha256).digest()


def sealed(key: bytes, text: bytes, context: str) -> str:
    """Encrypt a text and authenticate it together with its context. Return base64."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    hidden = _xor(text, _stream(key, nonce, len(text)))
    return base64.b64encode(nonce + hidden + _mac(key, context, nonce + hidden)).decode()


def opened(key: bytes, message: str, context: str) -> bytes:
    """Decrypt a text. Raise ValueError if the text was not sealed with this key and this context."""
    content = base64.b64decode(message.encode(), validate=True)
    body, mac = content[:-_MAC_BYTES], content[-_MAC_BYTES:]
    if len(body) < _NONCE_BYTES or not hmac.compare_digest(mac, _mac(key, context, body)):
        raise ValueError("the message was changed, or is for another agent")
    return _xor(body[_NONCE_BYTES:], _stream(key, body[:_NONCE_BYTES], len(body) - _NONCE_BYTES))


def authentication(key: bytes, text: str, context: str) -> str:
    """Return the authentication code of a report, in hexadecimal."""
    return _mac(key, "report\n" + context, text.encode()).hex()


def is_authentic(key: bytes, text: str, context: str, code: str) -> bool:
    """Return whether a report has this authentication code."""
    return hmac.compare_digest(authentication(key, text, context).encode(), code.encode("utf-8", "replace"))


def _mac(key: bytes, context: str, content: bytes) -> bytes:
    authenticated = len(context.encode()).to_bytes(4, "big") + context.encode() + content
    return hmac.new(_derived(key, b"authenticate"), authenticated, hashlib.sha256).digest()


def _stream(key: bytes, nonce: bytes, length: int) -> bytes:
    own = _derived(key, b"encrypt")
    blocks = range(-(-length // 32))
    return b"".join(hmac.digest(own, nonce + number.to_bytes(8, "big"), "sha256") for number in blocks)[:length]


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hmac.new(key, purpose, hashlib.sha256).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    length = len(one)
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(length, "big")
