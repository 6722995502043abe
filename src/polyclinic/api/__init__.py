"""What `import polyclinic` offers: studies, runs, results and models as Python objects.

`polyclinic/__init__.py` names all of it; each name is imported when it is first used.
"""
