"""A package as a MONAI bundle: a folder that `python -m monai.bundle run` predicts with.

Its network is the package's graph behind a few lines that the bundle holds itself, so that it needs
MONAI and onnxruntime but not Polyclinic.
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from polyclinic.predict.package import CARD, GRAPH, Package
from polyclinic.runs import RunError, write_atomic


def write_bundle(package: Package, folder: Path) -> None:
    """Write the bundle; the folder must not hold anything yet."""
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty; a MONAI bundle is a folder of its own")
    if package.facts.task.fit == "crop":
        raise RunError(
            "a task that crops images to their content has no whole graph, as MONAI needs; "
            "export a package, or train with fit pad or stretch"
        )
    write_atomic(folder / "configs" / "metadata.json", _json(_metadata(package)))
    write_atomic(folder / "configs" / "inference.json", _json(_inference()))
    write_atomic(folder / "models" / GRAPH, package.contents[GRAPH])
    code = files("polyclinic.exporting") / "bundle" / "network.py.txt"
    write_atomic(folder / "scripts" / "__init__.py", "")
    write_atomic(folder / "scripts" / "network.py", code.read_text())
    write_atomic(folder / "docs" / "README.md", package.contents[CARD])


def _metadata(package: Package) -> dict[str, Any]:
    facts = package.facts
    classes = {str(number): name for number, name in enumerate(facts.task.classes)}
    return {
        "version": facts.versions["polyclinic"],
        "changelog": {facts.versions["polyclinic"]: f"exported {facts.made}"},
        "monai_version": "1.6.0",
        "pytorch_version": facts.versions.get("torch", ""),
        "numpy_version": facts.versions.get("numpy", ""),
        "required_packages_version": {"onnxruntime": "1.22"},
        "task": facts.task.summary or facts.task.name,
        "description": facts.title,
        "authors": "see docs/README.md",
        "copyright": "see docs/README.md",
        "content_hash": package.content_hash,
        "network_data_format": {
            "inputs": {"image": _image(facts.task.channels, None)},
            "outputs": {"pred": _image(len(facts.task.classes), classes)},
        },
    }


def _image(channels: int, classes: dict[str, str] | None) -> dict[str, Any]:
    return {
        "type": "probabilities" if classes else "image",
        "format": "segmentation" if classes else "magnitude",
        "num_channels": channels,
        "spatial_shape": ["*", "*"],
        "dtype": "float32",
        "value_range": [0, 1] if classes else [],
        "is_patch_data": False,
        "channel_def": classes or {str(number): "image" for number in range(channels)},
    }


def _inference() -> dict[str, Any]:
    """Pictures of a folder in, class numbers as PNG out."""
    return {
        "imports": ["$import glob", "$import numpy", "$import torch", "$import monai"],
        "bundle_root": ".",
        "image_folder": "$@bundle_root + '/images'",
        "output_folder": "$@bundle_root + '/eval'",
        "images": "$sorted(glob.glob(@image_folder + '/*'))",
        "network_def": {
            "_target_": "scripts.network.OnnxNetwork",
            "path": "$@bundle_root + '/models/model.onnx'",
            "eight_bit": True,
        },
        "preprocessing": {
            "_target_": "LoadImaged",
            "keys": "image",
            "reader": "PILReader",
            "ensure_channel_first": True,
        },
        "dataset": {
            "_target_": "Dataset",
            "data": "$[{'image': each} for each in @images]",
            "transform": "@preprocessing",
        },
        "inferer": {"_target_": "SimpleInferer"},
        "postprocessing": {
            "_target_": "Compose",
            "transforms": [
                {"_target_": "AsDiscreted", "keys": "pred", "argmax": True},
                {
                    "_target_": "SaveImaged",
                    "keys": "pred",
                    "output_dir": "@output_folder",
                    "output_ext": ".png",
                    "output_postfix": "mask",
                    "output_dtype": "$numpy.uint8",
                    "resample": False,
                    "separate_folder": False,
                },
            ],
        },
        "predicted": "$lambda image: monai.data.MetaTensor("
        "@inferer(image[None], @network_def)[0], meta=image.meta)",
        "run": ["$[@postprocessing({'pred': @predicted(each['image'])}) for each in @dataset]"],
    }


def _json(table: dict[str, Any]) -> str:
    return json.dumps(table, indent=2, ensure_ascii=False) + "\n"
