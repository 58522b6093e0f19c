"""Highway workflows to read and to run: `python -m examples.highway.etl`, and so on."""
