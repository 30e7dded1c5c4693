"""The operations of the API on jobs, the policy and the queue, independent of HTTP."""
