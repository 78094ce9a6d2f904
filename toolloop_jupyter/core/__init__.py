"""The loop itself. It runs without a notebook: no module here imports IPython, ipywidgets, ipykernel or traitlets."""
