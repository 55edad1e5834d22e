"""`python -m suite doctor`: what this machine, TensorFlow and TF_CONFIG allow, before a run."""
