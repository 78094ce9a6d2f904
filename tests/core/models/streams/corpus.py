"""All cases of the corpus."""

from __future__ import annotations

from .calls import CALLS
from .failures import FAILURES
from .odd import ODD
from .words import WORDS

CASES = [*CALLS, *WORDS, *FAILURES, *ODD]
