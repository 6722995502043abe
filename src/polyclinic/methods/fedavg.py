"""Federated averaging (McMahan et al., AISTATS 2017, arXiv 1602.05629)."""

from dataclasses import dataclass

from polyclinic.federation.method import Method


@dataclass(frozen=True)
class FedAvg(Method):
    """One model for all: sites train the shared weights, the server averages them."""
