"""The loop itself. Knows no notebook: nothing here imports IPython, ipywidgets, ipykernel or traitlets."""
