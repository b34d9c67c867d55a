"""Small apps for `--app`, and workers that die on purpose."""
