"""The HTTP API between the queue and its clients, defined once: both sides import it, docs/openapi.yaml is made of it.

`models` has requests and answers, `policy_document` the policy, `errors` what a refusal looks like, `routes` which
operation takes and gives what. Here are msgspec and the standard library, and nothing else.
"""

VERSION = "0.1.0"
"""Of queue and client, each of which has its copy of this folder."""
