"""Whether what is stored, or brought along, is whole: verifying and repairing a file, checking an imported history."""
