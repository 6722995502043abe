"""The figures of a report, each a self-contained SVG; matplotlib is imported when one is drawn."""
