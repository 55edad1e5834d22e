"""What Ray Train does in each worker process, with TF_CONFIG set: call the program's function."""

import tensorflow_quick_start

tensorflow_quick_start.train_func_distributed()
