"""Run preemptible_fit where Keras assumes that its platform gives preemption notices.

For mwms/backup-preemption. Keras queries Google Cloud's metadata server, and takes any response for
yes. TensorFlow takes only a successful response for yes, and otherwise listens for SIGTERM. So the
local server here, which answers 404, makes both show the behavior under test.
"""

import http.server
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import preemptible_fit

from reference_trainers.support import workload


class NotFound(http.server.BaseHTTPRequestHandler):
    """Answer every request with 404."""

    def do_GET(self):
        self.send_error(404)

    def log_message(self, format, *_):  # noqa: A002 (the base class's name)
        pass


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NotFound)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["GCE_METADATA_IP"] = "127.0.0.1:%d" % server.server_port
    os.environ["no_proxy"] = "127.0.0.1"
    preemptible_fit.main()


if __name__ == "__main__":
    workload.run(main, "keras_preemption")
