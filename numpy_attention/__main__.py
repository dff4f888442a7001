"""python -m numpy_attention train | sample | gradcheck"""

import sys

from numpy_attention.cli import main

sys.exit(main())
