"""Train a policy: the same as `echelon train`."""

import sys

from echelon_jax.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
