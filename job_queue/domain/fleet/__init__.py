"""What is known of the fleet from SageMaker: how far its list, its plans' calendars, its warm pools."""
