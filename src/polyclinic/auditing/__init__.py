"""What a finished run gives away about the cases it was trained on (`polyclinic audit`)."""
