"""Convert the result of a tool, or a value in a prompt, for the model: to a text of limited length, and to pictures."""

from .images import (
    MOST_EACH,
    PicturePlace,
    decode_picture,
    detect_format,
    draw_picture,
    find_figure,
    find_pictures,
    is_drawable,
    make_address,
    make_addresses,
    make_thumbnail,
    measure_picture,
)
from .text import LIMIT, cut, cut_traceback, describe
