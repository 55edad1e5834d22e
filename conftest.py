"""Names the plugin only; everything else is in suite/harness."""

pytest_plugins = ["suite.harness.plugin"]
