"""What the command line does, one module per job; `cli.py` only reads arguments and the environment."""
