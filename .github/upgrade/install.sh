#!/usr/bin/env bash
# Install the suite, without TensorFlow: each side gets an environment of its own.
#
# Since 23.10, Ubuntu lets no unconfined program set up a network of its own. Without that the suite
# runs too, on leased ports.
set -euo pipefail

sudo -n sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 || true
python -m pip install --quiet -e "$GITHUB_ACTION_PATH"
