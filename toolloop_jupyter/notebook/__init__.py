"""Run the tool loop in a notebook: the magics, the transcript in a cell's output, the widgets, and the code for the kernel."""
