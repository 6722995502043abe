"""Where the real tasks lie, for tests that look at them."""

FOLDERS = {"octa": "faz", "fundus": "odoc", "polyp": "polyp", "prostate": "prostate"}
