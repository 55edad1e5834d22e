"""keras_multi_worker_mirrored where Keras believes that its platform gives notice of preemption.

For mwms/backup-preemption. Keras asks Google Cloud's metadata server, and takes any answer for yes.
TensorFlow takes only a good answer for that, and listens for SIGTERM otherwise. So a server that
knows nothing, as the one here, makes both of them do what is to be examined.
"""

import http.server
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from reference_trainers import keras_multi_worker_mirrored, workload


class NotFound(http.server.BaseHTTPRequestHandler):
    """Answers every question with 404."""

    def do_GET(self):
        self.send_error(404)

    def log_message(self, format, *_):  # noqa: A002 (its name there)
        pass


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NotFound)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["GCE_METADATA_IP"] = "127.0.0.1:%d" % server.server_port
    os.environ["no_proxy"] = "127.0.0.1"
    keras_multi_worker_mirrored.main()


if __name__ == "__main__":
    workload.run(main, "keras_preemption")
