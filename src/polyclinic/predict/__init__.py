"""Trained models as packages: loading, predicting, judging predictions; nothing here needs torch.

`load(path)` gives a model, and its `predict(image)` a mask in the image's own size.
"""

from polyclinic.predict.model import Model, load
from polyclinic.predict.package import PackageError
