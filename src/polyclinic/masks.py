"""What the pixels of a mask or a label hold: class numbers, or a number that says nothing."""

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.uint8]  # H×W class numbers; in labels also UNLABELLED
UNLABELLED = 255
