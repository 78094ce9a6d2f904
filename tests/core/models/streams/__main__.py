"""Run the corpus and print it as a table: `python -m tests.core.models.streams [part of a name]`, from the repository."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
sys.path.insert(0, str(Path(__file__).parents[3]))

from core.models.streams.corpus import CASES
from core.models.streams.table import run_table

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # litellm logs each chunk that it cannot read
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    cases = [case for case in CASES if wanted in case.name]
    sys.exit(asyncio.run(run_table(cases)))
