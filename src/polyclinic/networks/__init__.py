"""Segmentation networks: `NETWORKS[name](channels=…, classes=…)` makes one."""

from collections.abc import Callable

from polyclinic.networks.classic_unet import ClassicUNet
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.fcn import FCN
from polyclinic.networks.pvt import PVTFPN
from polyclinic.networks.res_unet import ResUNet
from polyclinic.networks.resnet_fpn import ResNetFPN
from polyclinic.networks.unet import UNet
from polyclinic.networks.unet_plus_plus import UNetPlusPlus

NETWORKS: dict[str, Callable[..., Segmenter]] = {
    net.name: net for net in (UNet, ClassicUNet, UNetPlusPlus, ResUNet, FCN, ResNetFPN, PVTFPN)
}
