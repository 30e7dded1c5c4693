"""DynamoDB's read and write units, and its limit for each partition key."""
