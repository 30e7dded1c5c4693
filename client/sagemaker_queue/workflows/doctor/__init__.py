"""Diagnose why this machine cannot use the queue (``smq doctor``): address, network, credentials, role, bucket.

`findings` defines the results of the steps. `network`, `caller`, `job_steps` and others are the steps. `examination`
runs all steps in order.
"""
