"""Prices of AWS in us-east-1 in US dollars, on demand, without free tiers, as of November 2025.

Sources, the price pages under https://aws.amazon.com/: api-gateway/pricing, lambda/pricing, dynamodb/pricing/on-demand,
eventbridge/pricing, cloudwatch/pricing, xray/pricing, s3/pricing, kms/pricing, privatelink/pricing.
"""

HOURS = 730  # in a month
API_REQUEST = 3.50 / 1e6  # a request to a REST API
LAMBDA_REQUEST = 0.20 / 1e6
LAMBDA_ARM_GB_SECOND = 0.0000133334  # arm64, the template's default
READ_UNIT = 0.125 / 1e6  # 4 KB read strongly consistently; eventually consistent reads take half a unit
WRITE_UNIT = 0.625 / 1e6  # 1 KB written; a transaction takes two units
EVENT = 1.00 / 1e6  # a custom event of EventBridge; events of AWS services cost nothing
METRIC = 0.30  # a custom metric, a month
ALARM = 0.10  # a standard alarm, a month
DASHBOARD = 3.00  # a month
LOG_GB = 0.50  # a GB of ingested logs
TRACE = 5.00 / 1e6  # recorded by X-Ray
S3_PUT = 5.00 / 1e6
S3_GET = 0.40 / 1e6
KMS_KEY = 1.00  # a customer-managed key, a month
KMS_SIGNATURE = 0.15 / 1e4  # asymmetric, RSA of more than 2,048 bits
ENDPOINT_HOUR = 0.01  # an interface endpoint in one zone
