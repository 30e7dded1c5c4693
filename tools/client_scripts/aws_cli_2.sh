# Run aws_cli_by_proxy.sh with the AWS CLI 2 of Debian 12. Versions before 2.13 do not read
# AWS_ENDPOINT_URL_SAGEMAKER, so the address is given as an option.
aws() { command aws --endpoint-url "$AWS_ENDPOINT_URL_SAGEMAKER" "$@"; }
. "$(dirname "$0")/aws_cli_by_proxy.sh"
