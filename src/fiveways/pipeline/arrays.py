"""Names of numpy array types."""

from typing import Any

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
UInt8Array = npt.NDArray[np.uint8]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]
AnyArray = npt.NDArray[Any]
