"""Tables, figures and one HTML page, made from run folders and from nothing else."""

from polyclinic.report.page import summary_table, write_report
