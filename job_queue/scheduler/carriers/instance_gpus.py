"""The number of GPUs, or of other accelerators, that an instance of each type has.

Source: the tables "Accelerated computing" of the EC2 instance type guide, for the types of SageMaker's service model.
For Trainium 1, NeuronCores are counted, because torchrun starts one process for each of them. Types are left out if
the number is not certain or depends on the configuration (trn2).
"""

from collections.abc import Mapping

_BY_FAMILY: Mapping[str, Mapping[str, int]] = {
    "p2": {"xlarge": 1, "8xlarge": 8, "16xlarge": 16},
    "p3": {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8},
    "p3dn": {"24xlarge": 8},
    "p4d": {"24xlarge": 8},
    "p4de": {"24xlarge": 8},
    "p5": {"4xlarge": 1, "48xlarge": 8},
    "p5e": {"48xlarge": 8},
    "p5en": {"48xlarge": 8},
    "p6-b200": {"48xlarge": 8},
    "p6-b300": {"48xlarge": 8},
    "p6e-gb200": {"36xlarge": 4},
    "g4dn": {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "16xlarge": 1, "12xlarge": 4},
    **dict.fromkeys(
        ("g5", "g6", "g6e"),
        {
            "xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "16xlarge": 1,
            "12xlarge": 4, "24xlarge": 4, "48xlarge": 8,
        },
    ),
    "g7e": {"2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 2, "24xlarge": 4, "48xlarge": 8},
    "trn1": {"2xlarge": 2, "32xlarge": 32},
    "trn1n": {"32xlarge": 32},
}  # fmt: skip

GPUS: Mapping[str, int] = {
    f"ml.{family}.{size}": count for family, sizes in _BY_FAMILY.items() for size, count in sizes.items()
}
"""SageMaker's instance type -> accelerators of one instance. A missing type is unknown or has no accelerators."""
