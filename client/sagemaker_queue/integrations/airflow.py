"""A session factory for Apache Airflow's Amazon provider: the training jobs of all its hooks go through the queue.

In ``airflow.cfg``, or by the environment variable ``AIRFLOW__AWS__SESSION_FACTORY``::

    [aws]
    session_factory = sagemaker_queue.integrations.airflow.QueueSessionFactory

The queue is asked in the name of the connection's credentials, also of a role that the connection assumes.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.amazon.aws.hooks.base_aws import BaseSessionFactory

from sagemaker_queue_startup import hook_lazily


class QueueSessionFactory(BaseSessionFactory):  # type: ignore[misc]  # Airflow is not there when types are checked
    """Makes the sessions that Airflow would make, those of deferrable operators included, and hooks their events."""

    def create_session(self, *args: Any, **kwargs: Any) -> Any:
        """Make the session."""
        session = super().create_session(*args, **kwargs)
        # Of aiobotocore, for deferrable operators, if it is none of boto3's.
        hook_lazily(getattr(session, "events", None) or session.get_component("event_emitter"))
        return session
