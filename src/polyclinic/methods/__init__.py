"""The methods, one file each, and the finishing steps that can follow any of them."""

from polyclinic.federation.method import Finish, Method
from polyclinic.methods.apfl import APFL
from polyclinic.methods.calibration import IGC
from polyclinic.methods.centralized import Centralized
from polyclinic.methods.consensus import ConsensusLabels
from polyclinic.methods.ditto import Ditto
from polyclinic.methods.fedala import FedALA
from polyclinic.methods.fedamp import FedAMP
from polyclinic.methods.fedap import FedAP
from polyclinic.methods.fedavg import FedAvg
from polyclinic.methods.fedbabu import FedBABU
from polyclinic.methods.fedbn import FedBN
from polyclinic.methods.feddg import FedDG
from polyclinic.methods.feddp import FedDP
from polyclinic.methods.feddyn import FedDyn
from polyclinic.methods.fedgkd import FedGKD
from polyclinic.methods.fedicra import FedICRA
from polyclinic.methods.fedlc import FedLC
from polyclinic.methods.fedlppa import FedLPPA
from polyclinic.methods.fednova import FedNova
from polyclinic.methods.fedper import FedPer
from polyclinic.methods.fedprox import FedProx
from polyclinic.methods.fedrep import FedRep
from polyclinic.methods.fedsm import FedSM
from polyclinic.methods.fedsoup import FedSoup
from polyclinic.methods.finetune import FineTune
from polyclinic.methods.iopfl import IOPFL
from polyclinic.methods.lg_fedavg import LGFedAvg
from polyclinic.methods.local import Local
from polyclinic.methods.metafed import MetaFed
from polyclinic.methods.moon import MOON
from polyclinic.methods.perfedavg import PerFedAvg
from polyclinic.methods.pfedme import PFedMe
from polyclinic.methods.pflfe import FCPFLFE, PFLFE
from polyclinic.methods.reestimate import Reestimate
from polyclinic.methods.scaffold import SCAFFOLD
from polyclinic.methods.server_optimizers import FedAdam, FedAvgM, FedYogi
from polyclinic.methods.virtual_classes import VirtualClasses

METHODS: dict[str, type[Method]] = {
    "local": Local,
    "centralized": Centralized,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedbn": FedBN,
    "fedap": FedAP,
    "fedper": FedPer,
    "fedrep": FedRep,
    "fedbabu": FedBABU,
    "lg-fedavg": LGFedAvg,
    "scaffold": SCAFFOLD,
    "fedgkd": FedGKD,
    "ditto": Ditto,
    "apfl": APFL,
    "fedsm": FedSM,
    "fedlc": FedLC,
    "iop-fl": IOPFL,
    "fedala": FedALA,
    "metafed": MetaFed,
    "fedicra": FedICRA,
    "fedlppa": FedLPPA,
    "consensus": ConsensusLabels,
    "virtual-classes": VirtualClasses,
    "pflfe": PFLFE,
    "fc-pflfe": FCPFLFE,
    "feddp": FedDP,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fednova": FedNova,
    "feddyn": FedDyn,
    "moon": MOON,
    "pfedme": PFedMe,
    "per-fedavg": PerFedAvg,
    "fedamp": FedAMP,
    "fedsoup": FedSoup,
    "feddg": FedDG,
}

FINISHING_STEPS: dict[str, type[Finish]] = {
    "finetune": FineTune,
    "reestimate": Reestimate,
    "igc": IGC,
}
