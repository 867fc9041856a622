"""The node process: keeps one engine process alive for each model that should be loaded."""


def main() -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status."""
    from serving.node.reconciler import run

    return run()
