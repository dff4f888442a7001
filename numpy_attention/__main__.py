"""python -m numpy_attention COMMAND"""

import sys

from numpy_attention.cli import main

sys.exit(main())
