"""A session factory for Apache Airflow's Amazon provider: all training jobs of its hooks go to the queue.

Set the factory in ``airflow.cfg``, or by the environment variable ``AIRFLOW__AWS__SESSION_FACTORY``::

    [aws]
    session_factory = sagemaker_queue.integrations.airflow.QueueSessionFactory

The queue is called with the connection's credentials, or with the credentials of a role that the connection assumes.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.amazon.aws.hooks.base_aws import BaseSessionFactory

from sagemaker_queue_startup import hook_lazily


class QueueSessionFactory(BaseSessionFactory):  # type: ignore[misc] # Airflow is not installed when types are checked
    """A factory that also hooks the events of Airflow's sessions, including the sessions of deferrable operators."""

    def create_session(self, *args: Any, **kwargs: Any) -> Any:
        """Create a session as Airflow does, and hook its events."""
        session = super().create_session(*args, **kwargs)
        # Deferrable operators have a session of aiobotocore, which has no attribute ``events``.
        hook_lazily(getattr(session, "events", None) or session.get_component("event_emitter"))
        return session
