"""Try new inputs at each seam, and print the faults: `python -m tests.fuzz --inputs 100000`, from the repository.

--inputs N        how many in all (of one seam, with --seam); default 2,000
--seam NAME       only this one: streams, bytes, outcomes, policies, options, recordings, histories, growth
--seed N          another seed gives other inputs; default 1
--keep FOLDER     write each fault there as a file of the corpus
--beside-litellm  run scripts on LiteLLM's Tool Loop as well, and print where the two differ and what explains it
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> int:
    """Run the fuzzer. Return 1 if it has found a fault."""
    from fuzz.corpus import write
    from fuzz.seams import SEAMS, find_seam
    from fuzz.search import Fault, search

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", usage=__doc__)
    parser.add_argument("--inputs", type=int, default=2_000)
    parser.add_argument("--seam", choices=[seam.name for seam in SEAMS])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--beside-litellm", action="store_true")
    given = parser.parse_args()
    if given.beside_litellm:
        from fuzz.beside_litellm import compare

        return compare(given.inputs, given.seed)

    def tell(fault: Fault) -> None:
        print(
            f"\n{fault.seam}, after {fault.after:,} inputs: {fault.invariant}: {fault.what}\n{write(fault)}",
            flush=True,
        )
        if given.keep is not None:
            name = f"{fault.seam}-{given.seed}-{fault.after}.json"
            (given.keep / name).write_text(write(fault), "utf-8")

    faults = 0
    for seam in SEAMS if given.seam is None else [find_seam(given.seam)]:
        inputs = given.inputs if given.seam else given.inputs * seam.share // 100
        report = search(seam, inputs, given.seed, tell)
        print(report, flush=True)
        faults += len(report.faults)
    return int(faults > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    sys.exit(main())
