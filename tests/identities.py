"""Callers as API Gateway and STS name them, and whom the queue takes for their owner."""

ACCOUNT = "111122223333"
USER = f"arn:aws:iam::{ACCOUNT}:user/research/ada"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/Research"
SESSIONS = f"arn:aws:sts::{ACCOUNT}:assumed-role"
ADA = f"{SESSIONS}/Research/ada"
SSO = f"{SESSIONS}/AWSReservedSSO_Research_0123456789abcdef/ada@example.org"
STUDIO = f"{SESSIONS}/Studio/SageMaker"
ROOT = f"arn:aws:iam::{ACCOUNT}:root"

# A caller, and its owner where that is another ARN.
OWNERS: list[tuple[str, str | None]] = [
    (USER, None),
    (ROOT, None),
    (ADA, None),
    (SSO, None),
    (STUDIO, None),
    (f"arn:aws:sts::{ACCOUNT}:federated-user/ada", None),
    (f"{SESSIONS}/Research/i-0123456789abcdef0", None),
    (f"{SESSIONS}/Research/botocore-session-ada", None),
    (f"{SESSIONS}/Research/ada-1791092141", None),
    (f"{SESSIONS}/Research/2026", None),
    ("", None),
    ("AIDAEXAMPLE", None),
    (f"{SESSIONS}/Research/botocore-session-1791092141", ROLE),
    (f"{SESSIONS}/Research/aws-sdk-js-session-1791092141000", ROLE),
    (f"{SESSIONS}/Research/aws-sdk-js-1791092141000", ROLE),
    (f"{SESSIONS}/Research/aws-sdk-java-1791092141000", ROLE),
    (f"{SESSIONS}/Research/aws-go-sdk-1791092141000000000", ROLE),
    (f"{SESSIONS}/Research/1791092141000000000", ROLE),
    (f"{SESSIONS}/Research/aws-dotnet-sdk-session-636238288466144357", ROLE),
    (f"{SESSIONS}/Research/aws-sdk-php-1791092141000", ROLE),
    (f"{SESSIONS}/Research/0123456789abcdef0123456789abcdef", ROLE),
    (f"{SESSIONS}/Research/AWSCodeBuild-01234567-89ab-cdef-0123-456789abcdef", ROLE),
    (f"{SESSIONS}/Research/eks-ml-notebook-01234567-89ab-cdef-0123-456789abcdef", ROLE),
    (
        f"arn:aws-cn:sts::{ACCOUNT}:assumed-role/Research/botocore-session-1791092141",
        f"arn:aws-cn:iam::{ACCOUNT}:role/Research",
    ),
]

# A pattern, those of these callers whom it means, and no others.
CALLERS = [USER, ROOT, ADA, SSO, STUDIO, f"{SESSIONS}/Research/botocore-session-1791092141", f"{SESSIONS}/Search/ada"]
LIBRARY = CALLERS[5]
OTHER = CALLERS[6]
PATTERNS: list[tuple[str, list[str]]] = [
    (USER, [USER]),
    (f"arn:aws:iam::{ACCOUNT}:user/*", []),  # it crosses no slash, and ada is user/research/ada
    (f"arn:aws:iam::{ACCOUNT}:user/*/*", [USER]),
    (f"arn:aws:iam::{ACCOUNT}:user/research/*", [USER]),
    ("arn:aws:iam::*:user/research/ada", [USER]),
    (ROOT, [ROOT]),
    (ROLE, [ADA, LIBRARY]),
    (f"arn:aws:iam::{ACCOUNT}:role/teams/a/Research", [ADA, LIBRARY]),
    (f"arn:aws:iam::{ACCOUNT}:role/*earch", [ADA, LIBRARY, OTHER]),
    (f"arn:aws:iam::{ACCOUNT}:role/*", [ADA, SSO, STUDIO, LIBRARY, OTHER]),
    ("arn:aws:iam::*:role/Research", [ADA, LIBRARY]),
    ("arn:*:iam::*:role/Research", [ADA, LIBRARY]),
    ("arn:aws:iam::999999999999:role/Research", []),
    ("arn:aws-cn:iam::111122223333:role/Research", []),
    (f"arn:aws:iam::{ACCOUNT}:role/research", []),
    (f"arn:aws:iam::{ACCOUNT}:role/aws-reserved/sso.amazonaws.com/*/AWSReservedSSO_Research_*", [SSO]),
    (f"arn:aws:iam::{ACCOUNT}:role/aws-reserved/sso.amazonaws.com/AWSReservedSSO_Research_*", [SSO]),
    (ADA, [ADA]),
    (f"{SESSIONS}/Research/*", [ADA, LIBRARY]),
    (f"{SESSIONS}/*/ada", [ADA, OTHER]),
    (f"{SESSIONS}/*/*", [ADA, SSO, STUDIO, LIBRARY, OTHER]),
    (f"{SESSIONS}/Research*/*", [ADA, LIBRARY]),
    (f"{SESSIONS}/*/*@example.org", [SSO]),
    ("*", CALLERS),
]

# Patterns that can mean nobody, or not whom they seem to, and a part of what is said of each.
HOPELESS: list[tuple[str, str]] = [
    ("", "is not an ARN"),
    ("ada", "is not an ARN"),
    ("ada*", "is not an ARN"),
    ("arn", "is not an ARN"),
    ("arn:aws:iam", "is not a whole ARN"),
    ("arn:aws:iam::*", "* does not cross a colon"),
    ("*/ada", "is not an ARN"),
    ("*:role/Research", "is not an ARN"),
    (f"arn:aws:iam::{ACCOUNT}:*", "leaves open"),
    (f"arn:aws:iam::{ACCOUNT}:*/ada", "leaves open"),
    (f"arn:aws:iam::{ACCOUNT}:user/ad?", "only * does"),
    (f"arn:aws:iam::{ACCOUNT}:user/[a-z]*", "only * does"),
    (f"{SESSIONS}/Research", "append /*"),
    (f"{SESSIONS}/Research*", "append /*"),
    (f"{SESSIONS}/*", "append /*"),
    (f"{SESSIONS}/teams/Research/*", "has no path"),
    (f"{SESSIONS}/Research/botocore-session-1791092141", "made up"),
    (f"arn:aws:sts::{ACCOUNT}:role/Research", "arn:aws:iam::"),
    (f"arn:aws:iam::{ACCOUNT}:assumed-role/Research/*", "arn:aws:sts::"),
    (f"arn:aws:sts::{ACCOUNT}:user/ada", "arn:aws:iam::"),
    ("arn:aws:iam:eu-west-1:111122223333:user/ada", "arn:aws:iam::"),
    (f"arn:aws:iam::{ACCOUNT}:group/admins", "is not the ARN of a caller"),
    (f"arn:aws:iam::{ACCOUNT}:user/team/", "matches no caller"),
    (f"arn:aws:iam::{ACCOUNT}:user/(a+)+$", "matches no caller"),
    (f"arn:aws:iam::{ACCOUNT}:policy/admins", "is not the ARN of a caller"),
    (f"arn:aws:iam::{ACCOUNT}:root/ada", "is not the ARN of a caller"),
    (f"arn:aws:iam::{ACCOUNT}:user", "is not the ARN of a caller"),
    (f"arn:aws:iam::{ACCOUNT}:role/", "is not the ARN of a caller"),
    (f"arn:aws:iam::{ACCOUNT}:role/teams/", "names no role"),
    ("arn:aws:iam::research:role/Research", "12 digits"),
    ("arn:aws:iam:::role/Research", "12 digits"),
    (f"arn:aws:iam::{ACCOUNT}:role/teams/*", "other paths"),
    (f"arn:aws:iam::{ACCOUNT}:role/teams/Re*", "other paths"),
    (f"arn:aws:iam::{ACCOUNT}:role/aws-reserved/sso.amazonaws.com/*", "other paths"),
    (f"arn:aws:iam::{ACCOUNT}:role/aws-reserved/sso.amazonaws.com/Admin*", "other paths"),
    ("arn:aws:lambda:eu-west-1:111122223333:function:x", "is not the ARN of a caller"),
]
