"""Pictures of what a transformer does; they need matplotlib (`pip install 'numpy-attention[plots]'`).

Each function returns a new `matplotlib.figure.Figure`, which a notebook displays at the end of a cell, and which `save`
writes to a file. pyplot and its settings do not change. In every map zero is white, positive numbers are blue and
negative numbers are orange; a stronger colour is a larger number. Lines differ by colour, dash and marker. A wrong
shape, a wrong number of labels, and numbers in a map that are not finite raise ValueError.
"""

from numpy_attention.app.plots import curves, maps
from numpy_attention.app.plots.curves import *
from numpy_attention.app.plots.maps import *
from numpy_attention.app.plots.style import save

__all__ = ["save"]
__all__ += curves.__all__ + maps.__all__
