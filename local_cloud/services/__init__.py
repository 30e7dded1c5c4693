"""Parts of AWS services that ministack lacks: filters of logs, tokens of Step Functions, policies of event buses."""
