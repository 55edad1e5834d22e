"""Start a Ray cluster of several nodes on this machine, until standard input ends.

Run by file path in a process of its own, with Ray installed. It prints one JSON line: the address,
or an error. Ray's processes end with this one, and it ends when pytest ends in any way.
"""

import json
import os
import sys
from typing import Any

STORE_BYTES = 80 * 2**20  # of each node's object store; Ray's minimum is 75 MiB
PROCESSORS = 16  # of each node, as Ray counts them: tasks share the real ones


def main() -> int:
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_DISABLE_IMPORT_WARNING="1")
    nodes = int(sys.argv[1])
    # Ray and its processes print to standard output, too.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

        store: dict[str, Any] = {"object_store_memory": STORE_BYTES}
        head = {"num_cpus": 0, "include_dashboard": False, **store}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(nodes):
            cluster.add_node(num_cpus=PROCESSORS, **store)
        cluster.wait_for_nodes()
    except Exception as error:  # noqa: BLE001 - the caller reports it, whatever it is
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers, flush=True)
        return 1
    print(json.dumps({"address": cluster.address}), file=answers, flush=True)
    sys.stdin.read()
    cluster.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
