"""The process of one run of a variant.

  python -m studies.child MODULE NAME '{"data_dir": "DIR", ...}'

In: a module with a dataclass `Job` and a function `measure(name, job)`, the name of a
variant, and the fields of a `Job`. Out: a line of JSON with the figures of the run.
"""

import importlib
import json
import sys


def main(argv: list[str]) -> None:
    """Measures the variant of the command line and prints its figures."""
    module, name, fields = argv[1:]
    variants = importlib.import_module(module)
    job = variants.Job(**json.loads(fields))
    print(json.dumps(variants.measure(name, job)))


if __name__ == "__main__":
    main(sys.argv)
