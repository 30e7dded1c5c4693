"""The HTTP API between the queue and its clients, defined once.

The queue and its clients import this folder, and docs/openapi.yaml is generated from it. `models`, `history` and
`preview` define requests and answers. `error_codes` defines refusals, and `routes` defines the operations. `notices`
and `intervals` write sentences for people. This folder imports only msgspec and the standard library. The schema of a
policy is `job_queue/scheduler/documents/policy_schema.py`.
"""

VERSION = "1.0.0"
"""The version of queue and client; each contains a copy of this folder."""
