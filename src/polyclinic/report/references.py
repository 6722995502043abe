"""Who thought of what a study uses, as BibTeX."""
# ruff: noqa: E501 (a publication is one line)

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple


class Reference(NamedTuple):
    """A publication; what is not known is empty. Further authors are "others"."""

    author: str
    title: str
    venue: str
    year: int
    arxiv: str = ""


METHODS: Mapping[str, Reference] = {
    "apfl": Reference("Deng, Yuyang", "Adaptive Personalized Federated Learning", "", 2020, "2003.13461"),
    "ditto": Reference("Li, Tian", "Ditto: Fair and Robust Federated Learning Through Personalization", "ICML", 2021, "2012.04221"),
    "fedala": Reference("Zhang, Jianqing", "FedALA: Adaptive Local Aggregation for Personalized Federated Learning", "AAAI", 2023, "2212.01197"),
    "fedamp": Reference("Huang, Yutao", "Personalized Cross-Silo Federated Learning on Non-IID Data", "AAAI", 2021, "2007.03797"),
    "fedap": Reference("Lu, Wang", "Personalized Federated Learning with Adaptive Batchnorm for Healthcare", "IEEE Transactions on Big Data", 2022, "2112.00734"),
    "fedavg": Reference("McMahan, Brendan", "Communication-Efficient Learning of Deep Networks from Decentralized Data", "AISTATS", 2017, "1602.05629"),
    "fedavgm": Reference("Hsu, Tzu-Ming Harry", "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification", "", 2019, "1909.06335"),
    "finetune": Reference("Wang, Kangkang", "Federated Evaluation of On-device Personalization", "", 2019, "1910.10252"),
    "fedadam": Reference("Reddi, Sashank J.", "Adaptive Federated Optimization", "ICLR", 2021, "2003.00295"),
    "fedyogi": Reference("Reddi, Sashank J.", "Adaptive Federated Optimization", "ICLR", 2021, "2003.00295"),
    "fedbabu": Reference("Oh, Jaehoon", "FedBABU: Toward Enhanced Representation for Federated Image Classification", "ICLR", 2022, "2106.06042"),
    "fedbn": Reference("Li, Xiaoxiao", "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", "ICLR", 2021, "2102.07623"),
    "feddg": Reference("Liu, Quande", "FedDG: Federated Domain Generalization on Medical Image Segmentation via Episodic Learning in Continuous Frequency Space", "CVPR", 2021, "2103.06030"),
    "feddp": Reference("Wang, Jiacheng", "FedDP: Dual Personalization in Federated Medical Image Segmentation", "IEEE Transactions on Medical Imaging", 2024),
    "feddyn": Reference("Acar, Durmus Alp Emre", "Federated Learning Based on Dynamic Regularization", "ICLR", 2021, "2111.04263"),
    "fedgkd": Reference("Yao, Dezhong", "Local-Global Knowledge Distillation in Heterogeneous Federated Learning with Non-IID Data", "", 2021, "2107.00051"),
    "fedicra": Reference("Lin, Li", "Unifying and Personalizing Weakly-supervised Federated Medical Image Segmentation via Adaptive Representation and Aggregation", "MLMI", 2023, "2304.05635"),
    "fedlc": Reference("Wang, Jiacheng", "Personalizing Federated Medical Image Segmentation via Local Calibration", "ECCV", 2022, "2207.04655"),
    "fedlppa": Reference("Lin, Li", "FedLPPA: Learning Personalized Prompt and Aggregation for Federated Weakly-supervised Medical Image Segmentation", "IEEE Transactions on Medical Imaging", 2024, "2402.17502"),
    "fednova": Reference("Wang, Jianyu", "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", "NeurIPS", 2020, "2007.07481"),
    "fedper": Reference("Arivazhagan, Manoj Ghuhan", "Federated Learning with Personalization Layers", "", 2019, "1912.00818"),
    "fedprox": Reference("Li, Tian", "Federated Optimization in Heterogeneous Networks", "MLSys", 2020, "1812.06127"),
    "fedrep": Reference("Collins, Liam", "Exploiting Shared Representations for Personalized Federated Learning", "ICML", 2021, "2102.07078"),
    "fedsm": Reference("Xu, An", "Closing the Generalization Gap of Cross-silo Federated Medical Image Segmentation", "CVPR", 2022, "2203.10144"),
    "fedsoup": Reference("Chen, Minghui", "FedSoup: Improving Generalization and Personalization in Federated Learning via Selective Model Interpolation", "MICCAI", 2023, "2307.10507"),
    "iop-fl": Reference("Jiang, Meirui", "IOP-FL: Inside-Outside Personalization for Federated Medical Image Segmentation", "IEEE Transactions on Medical Imaging", 2023, "2204.08467"),
    "lg-fedavg": Reference("Liang, Paul Pu", "Think Locally, Act Globally: Federated Learning with Local and Global Representations", "", 2020, "2001.01523"),
    "metafed": Reference("Chen, Yiqiang", "MetaFed: Federated Learning among Federations with Cyclic Knowledge Distillation for Personalized Healthcare", "IEEE Transactions on Neural Networks and Learning Systems", 2023, "2206.08516"),
    "moon": Reference("Li, Qinbin", "Model-Contrastive Federated Learning", "CVPR", 2021, "2103.16257"),
    "per-fedavg": Reference("Fallah, Alireza", "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning Approach", "NeurIPS", 2020, "2002.07948"),
    "pfedme": Reference("Dinh, Canh T.", "Personalized Federated Learning with Moreau Envelopes", "NeurIPS", 2020, "2006.08848"),
    "pflfe": Reference("Xie, Luyuan", "pFLFE: Cross-silo Personalized Federated Learning via Feature Enhancement on Medical Image Segmentation", "MICCAI", 2024, "2407.00462"),
    "scaffold": Reference("Karimireddy, Sai Praneeth", "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", "ICML", 2020, "1910.06378"),
    "virtual-classes": Reference("Liu, Yuzhi", "Personalized Federated Medical Image Segmentation via Virtual Classes", "", 2024),
    "reestimate": Reference("Li, Yanghao", "Revisiting Batch Normalization for Practical Domain Adaptation", "", 2016, "1603.04779"),
}  # fmt: skip
METHODS = {
    **METHODS,
    "fc-pflfe": METHODS["pflfe"],
    "igc": METHODS["feddp"],
}
FPN = Reference(
    "Lin, Tsung-Yi", "Feature Pyramid Networks for Object Detection", "CVPR", 2017, "1612.03144"
)
UNET = Reference(
    "Ronneberger, Olaf",
    "U-Net: Convolutional Networks for Biomedical Image Segmentation",
    "MICCAI",
    2015,
    "1505.04597",
)
NETWORKS: Mapping[str, Mapping[str, Reference]] = {
    "unet": {"unet": UNET},
    "classic_unet": {"unet": UNET},
    "unet_plus_plus": {"unet++": Reference("Zhou, Zongwei", "UNet++: A Nested U-Net Architecture for Medical Image Segmentation", "DLMIA", 2018, "1807.10165")},
    "res_unet": {"res-unet": Reference("Zhang, Zhengxin", "Road Extraction by Deep Residual U-Net", "", 2017, "1711.10684")},
    "fcn": {"fcn": Reference("Long, Jonathan", "Fully Convolutional Networks for Semantic Segmentation", "CVPR", 2015, "1411.4038")},
    "resnet_fpn": {"resnet": Reference("He, Kaiming", "Deep Residual Learning for Image Recognition", "CVPR", 2016, "1512.03385"), "fpn": FPN},
    "pvt_fpn": {"pvt": Reference("Wang, Wenhai", "PVT v2: Improved Baselines with Pyramid Vision Transformer", "Computational Visual Media", 2022, "2106.13797"), "fpn": FPN},
}  # fmt: skip
JOURNALS = ("IEEE Trans", "Computational Visual Media")


def bibtex(methods: Iterable[str], networks: Iterable[str]) -> str:
    """The entries of what is known of these, each publication once, keys as studies name methods."""
    entries: dict[Reference, str] = {}
    found = [{name: METHODS[name]} for name in methods if name in METHODS]
    found += [dict(NETWORKS[name]) for name in networks if name in NETWORKS]
    for key, reference in chain.from_iterable(each.items() for each in found):
        entries.setdefault(reference, key)
    return "\n".join(_entry(key, reference) for reference, key in entries.items())


def _entry(key: str, reference: Reference) -> str:
    kind, place = "inproceedings", "booktitle"
    if reference.venue.startswith(JOURNALS):
        kind, place = "article", "journal"
    elif not reference.venue:
        kind, place = "misc", ""
    fields = {
        "author": f"{reference.author} and others",
        "title": f"{{{reference.title}}}",
        place: reference.venue,
        "year": str(reference.year),
        "eprint": reference.arxiv,
        "archiveprefix": "arXiv" if reference.arxiv else "",
    }
    body = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items() if value)
    return f"@{kind}{{{key},\n{body}}}\n"
