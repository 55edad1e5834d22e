"""Replace this process by a fresh interpreter that runs another program.

A reproduction must not depend on what the harness imports or configures before it.
"""

import argparse
import os
import sys

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--program", required=True, help="path of the program to run")
program = parser.parse_args().program
os.execv(sys.executable, [sys.executable, program])
