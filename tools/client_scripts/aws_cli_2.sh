# As aws_cli_by_proxy.sh, by the AWS CLI 2 of Debian 12. That version is older than 2.13, which reads
# AWS_ENDPOINT_URL_SAGEMAKER, so the address is an option.
aws() { command aws --endpoint-url "$AWS_ENDPOINT_URL_SAGEMAKER" "$@"; }
. "$(dirname "$0")/aws_cli_by_proxy.sh"
