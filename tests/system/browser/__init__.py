"""What a person sees and does in JupyterLab and Notebook 7; a package, so that its tests can share a Chromium."""
