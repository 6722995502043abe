"""A model behind a web page, HTTP and DICOM; nothing here needs torch."""
