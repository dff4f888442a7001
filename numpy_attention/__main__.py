"""python -m numpy_attention COMMAND"""

import sys

from numpy_attention.app.main import main

sys.exit(main())
