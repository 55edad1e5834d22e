"""Options and plug-in names only; everything else lives in suite/harness."""

pytest_plugins = ["suite.harness.plugin"]
