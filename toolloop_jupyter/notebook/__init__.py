"""Everything a person sees or clicks."""
