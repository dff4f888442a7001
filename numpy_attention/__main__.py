"""python -m numpy_attention COMMAND"""

import signal
import sys

from numpy_attention.cli import main

if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # __init__.py has set it while everything was imported
    signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
