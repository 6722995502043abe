"""Volumes out of NIfTI and DICOM files, their geometry included; nothing here needs torch."""
