"""Knowledge about the fleet from SageMaker: its list of training jobs, calendars of training plans, warm pools."""
