"""`python -m bench [names]`: print every speed ratio, or those of the modules named."""

import os
import sys
from importlib import import_module

from polyclinic.environment import ENVIRONMENT

BENCHES = (
    "step",
    "federation",
    "mixing",
    "metrics",
    "data",
    "synthetic",
    "losses",
    "weak",
    "memory",
    "scale",
    "predicting",
    "serving",
)


def main() -> None:
    os.environ.update(ENVIRONMENT)  # before torch is imported
    for name in sys.argv[1:] or BENCHES:
        for ratio in import_module(f"bench.{name}").run():
            target = f"  (target {ratio.target:.2f}×)" if ratio.target else ""
            note = f"  {ratio.note}" if ratio.note else ""
            print(f"{ratio.name:<52} {ratio.times:7.2f}×{target}{note}", flush=True)


main()
