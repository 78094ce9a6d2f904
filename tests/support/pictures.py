"""A picture, as a notebook has it in a variable."""

from __future__ import annotations

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c636462f8cf50000003860180"
    "5a348d6b0000000049454e44ae426082"
)


class Picture:
    def _repr_png_(self):
        return PNG
