"""Other tools' figures and files: reproduced, read, written."""
