"""Recognise files with keys and passwords, which are not packed with a job's code unless the user allows it.

Files are recognised by the names that common tools give them, and by content where a name is ambiguous. The check finds
forgotten files, but can miss a secret. Files that a job does not need belong in .smqignore.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pathspec import GitIgnoreSpec

from sagemaker_queue.errors import InvalidOption

# In the syntax of .gitignore: a file that matches a pattern after a ! is not secret.
PATTERNS = """
.env
.env.*
.env~
.envrc
*.env
!.env.example
!.env.sample
!.env.template
!.env.dist
.aws/
.azure/
.config/gcloud/
application_default_credentials.json
.boto
.s3cfg
.passwd-s3fs
.netrc
_netrc
.ssh/
id_rsa
id_dsa
id_ecdsa
id_ecdsa_sk
id_ed25519
id_ed25519_sk
*.ppk
*.p12
*.pfx
*.jks
*.keystore
*.kdbx
.gnupg/
secring.gpg
.git-credentials
.config/gh/
.pypirc
.npmrc
.yarnrc.yml
.docker/
.dockercfg
.kube/
kubeconfig
*.kubeconfig
.vault-token
.terraformrc
terraform.tfstate
terraform.tfstate.backup
*.tfvars
.pgpass
.my.cnf
.mylogin.cnf
.htpasswd
.huggingface/token
.cache/huggingface/token
.cache/huggingface/stored_tokens
.kaggle/
kaggle.json
.databrickscfg
.snowflake/
.wandb/settings
secrets.toml
secrets.json
secrets.yaml
secrets.yml
credentials.json
service-account*.json
service_account*.json
client_secret*.json
"""
_NAMES = GitIgnoreSpec.from_lines(PATTERNS.split())
_SEARCHED_SUFFIXES = (
    ".pem",
    ".key",
    ".json",
    ".txt",
    ".crt",
    ".cer",
    ".yaml",
    ".yml",
    ".conf",
    ".cfg",
    ".ini",
    ".bak",
    ".old",
    "",
)
_LARGEST = 256_000  # bytes of a file whose content is checked; keys are small
_PRIVATE_KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")
_CONTENT = (
    _PRIVATE_KEY,  # also matches the JSON keys of Google's service accounts
    re.compile(rb"^\s*aws_secret_access_key\s*[=:]\s*\S", re.MULTILINE | re.IGNORECASE),
    re.compile(rb"^\s*client-key-data:\s*\S", re.MULTILINE),  # a kubeconfig of any name
    re.compile(rb'"auths"\s*:\s*\{[^}]*"auth"\s*:', re.DOTALL),  # Docker's logins
)


class SecretFiles:
    """The secret files of a folder; ``allowed`` are patterns of files that are packed nevertheless.

    Raises InvalidOption for patterns without effect, because the user expects that files are packed.
    """

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        included = [_includes(pattern) for pattern in allowed]
        self._allowed = GitIgnoreSpec.from_lines(allowed)
        if included and not included[0]:
            raise InvalidOption(f"{allowed[0]!r} names no files to pack: leave out the !, or put a pattern before it.")

    def has(self, path: Path, relative: str, *, is_folder: bool = False) -> bool:
        """Return whether a file or folder may have secrets, and so is not packed.

        ``relative`` is the path below the working folder. A folder is recognised only by its name.
        """
        relative = f"{relative}/" if is_folder else relative
        if self._allowed.match_file(relative):
            return False
        # Compare in lower case, because .ENV and .env are one file on some file systems.
        return _NAMES.match_file(relative.lower()) or (not is_folder and _holds_secret(path))


def _includes(pattern: str) -> bool:
    """Return whether a pattern in the syntax of .gitignore names files; False if it names exceptions (with !).

    Raises InvalidOption if the pattern is invalid, empty or a comment.
    """
    try:
        included = [found.include for found in GitIgnoreSpec.from_lines([pattern]).patterns]
    except ValueError:
        included = []
    if included not in ([True], [False]):
        raise InvalidOption(f"{pattern!r} is not a pattern of files to pack: it must look like .env or keys/*.pem.")
    return included == [True]


def _holds_secret(path: Path) -> bool:
    if path.is_symlink() or path.suffix.lower() not in _SEARCHED_SUFFIXES or path.stat().st_size > _LARGEST:
        return False
    content = path.read_bytes()
    return any(pattern.search(content) for pattern in _CONTENT)
