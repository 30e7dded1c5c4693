"""The deployment's key pair, with which the queue signs orders to agents. AWS KMS keeps the private key."""

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from job_queue.domain.errors import Unavailable

if TYPE_CHECKING:
    from mypy_boto3_kms.client import KMSClient

# A public key of 2,048 bits as AWS KMS returns it: SubjectPublicKeyInfo (RFC 5280) of rsaEncryption (RFC 8017, A.1), in
# DER. Only the modulus differs between such keys.
_BEFORE = bytes.fromhex("30820122300d06092a864886f70d01010105000382010f003082010a0282010100")
_AFTER = bytes.fromhex("0203010001")
_MODULUS = 256  # bytes
MOST_REMEMBERED = 1_000  # signatures


class OrderKey(Protocol):
    """A key that signs orders."""

    @property
    def modulus(self) -> int:
        """The modulus of the RSA key pair, whose public exponent is 65,537.

        Reading the modulus may raise Unavailable.
        """
        ...

    def sign(self, text: str) -> bytes:
        """Return the signature (RSASSA-PKCS1-v1_5, SHA-256) of a text; raise Unavailable."""
        ...


class KmsOrderKey:
    """A key pair in AWS KMS. A process keeps the public key and the last `MOST_REMEMBERED` signatures.

    :param client: a boto3 KMS client.
    :param key: the key's ARN.
    """

    def __init__(self, client: "KMSClient", key: str) -> None:
        self._client, self._key = client, key
        self._modulus: int | None = None
        self._signed = lru_cache(MOST_REMEMBERED)(self._sign)

    @property
    def modulus(self) -> int:
        """The modulus of the RSA key pair. Reading the modulus may raise Unavailable."""
        if self._modulus is None:
            try:
                found = self._client.get_public_key(KeyId=self._key)["PublicKey"]
            except (ClientError, BotoCoreError) as error:
                raise Unavailable(f"The key that signs orders to agents could not be read: {error}") from error
            self._modulus = modulus_of(found)
        return self._modulus

    def sign(self, text: str) -> bytes:
        """Return the signature of a text; raise Unavailable."""
        return self._signed(text)

    def _sign(self, text: str) -> bytes:
        try:
            answer = self._client.sign(
                KeyId=self._key,
                Message=hashlib.sha256(text.encode()).digest(),  # KMS accepts messages of at most 4,096 bytes
                MessageType="DIGEST",
                SigningAlgorithm="RSASSA_PKCS1_V1_5_SHA_256",
            )
        except (ClientError, BotoCoreError) as error:
            raise Unavailable(f"An order to an agent could not be signed: {error}") from error
        return answer["Signature"]


def modulus_of(public_key: bytes) -> int:
    """Return the modulus of an RSA public key of 2,048 bits in DER; raise Unavailable for any other key."""
    before, after = len(_BEFORE), len(_BEFORE) + _MODULUS
    if public_key[:before] != _BEFORE or public_key[after:] != _AFTER:
        raise Unavailable("The key that signs orders to agents is not an RSA key of 2,048 bits.")
    return int.from_bytes(public_key[before:after], "big")
