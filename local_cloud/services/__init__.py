"""Parts of AWS services that ministack lacks: tokens of Step Functions, and policies of event buses."""
