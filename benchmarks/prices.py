"""Prices of AWS in us-east-1 in US dollars, on demand, without free tiers, as AWS's price pages told in 2025.

https://aws.amazon.com/api-gateway/pricing/, /lambda/pricing/, /dynamodb/pricing/on-demand/,
/cloudwatch/pricing/
"""

API_REQUEST = 3.50 / 1e6  # a request to a REST API
LAMBDA_REQUEST = 0.20 / 1e6
LAMBDA_GB_SECOND = 0.0000166667  # x86_64; arm64 costs a fifth less
READ_UNIT = 0.125 / 1e6  # 4 KB read strongly consistently; eventually consistent reads take half a unit
LOG_GB = 0.50  # ingested by CloudWatch Logs
WRITE_UNIT = 0.625 / 1e6  # 1 KB written; a transaction takes two units
