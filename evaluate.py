"""Play evaluation games: the same as `echelon evaluate`."""

import sys

from echelon_jax.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
