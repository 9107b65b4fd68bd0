"""`pbodl serve`, `pbodl route` and `pbodl up`: answer requests over HTTP, and run the whole system at once."""

import contextlib
from typing import Annotated, Any

import typer
from rich.markup import escape

from pbodl._jit import compiled_before
from pbodl.commands.shared_options import MOST, MOST_WORKERS, PORTS, finite
from pbodl.errors import InputError
from pbodl.parallel.engines import ENGINES
from pbodl.training.display import console


def serve(
    run: Annotated[
        str | None, typer.Argument(help="Run folder of a training or live learner, or a model folder (path or s3://...).")
    ] = None,
    model: Annotated[list[str], typer.Option("--model", help="Model by name, such as a=runs/a, instead of RUN; repeatable.")] = [],  # noqa: B006
    models: Annotated[
        str | None, typer.Option(help="TOML file that names the models, their traffic and shadows, instead of RUN; it is watched.")
    ] = None,
    log_decisions: Annotated[
        str | None, typer.Option(help="Log of /v1/rank: a .jsonl file, redis://host:port/stream or kafka://host:port/topic.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(**PORTS, help="Port to listen on (0 picks a free one).")] = 8080,
    workers: Annotated[
        int, typer.Option(min=1, max=MOST_WORKERS, help="Number of processes that answer; they share the model's memory.")
    ] = 1,
    token_file: Annotated[str | None, typer.Option(help="File with the token that every request must carry.")] = None,
    max_candidates: Annotated[int, typer.Option(min=1, max=MOST, help="Maximum number of candidates in a request.")] = 10_000,
    max_body: Annotated[int, typer.Option(min=1, max=MOST, help="Maximum size of a request body in bytes.")] = 8 * 2**20,
    max_concurrent: Annotated[
        int, typer.Option(min=1, max=MOST, help="Number of complete requests that a worker works on at a time.")
    ] = 16,
    max_waiting: Annotated[
        int, typer.Option(min=0, max=MOST, help="Number of requests that may queue beside them; more are refused with 503.")
    ] = 64,
    timeout: Annotated[
        float, typer.Option(min=0.001, callback=finite, help="Seconds from a request's first byte to its last, and to its turn.")
    ] = 5.0,
    shard: Annotated[
        str | None,
        typer.Option(help="Share of the rows to hold for `pbodl route`, such as 0/4 (default: all, for everybody)."),
    ] = None,
) -> None:
    """Serve CTRs over HTTP from the newest model of a run. Ctrl-C finishes the requests in flight and stops."""
    from pbodl.serving import require_web

    require_web()
    from pbodl.serving.serve import ServeSettings
    from pbodl.serving.serve import serve as serve_run
    from pbodl.serving.web.server_limits import Limits

    limits = Limits(
        body=max_body, candidates=max_candidates, concurrent=max_concurrent, waiting=max_waiting, patience=timeout
    )  # fmt: skip
    settings = ServeSettings(
        run=run, host=host, port=port, workers=workers, token_file=token_file, limits=limits, models=tuple(model),
        models_file=models, log=log_decisions, shard=shard,
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        if console.is_terminal:
            compiling = "" if compiled_before() else "; compiling once on this machine, which takes about a minute"
            stack.enter_context(console.status(f"loading {escape(run or 'the models')}{compiling}"))

        def tell(text: str) -> None:
            stack.close()
            console.print(escape(text), soft_wrap=True)

        serve_run(settings, tell, open_decisions)


def route(
    shard: Annotated[
        list[str],
        typer.Option("--shard", help="Address of a server with a share (`pbodl serve --shard`); repeatable, for all of them."),
    ],
    log_decisions: Annotated[
        str | None, typer.Option(help="Log of /v1/rank: a .jsonl file, redis://host:port/stream or kafka://host:port/topic.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(**PORTS, help="Port to listen on (0 picks a free one).")] = 8080,
    token_file: Annotated[str | None, typer.Option(help="File with the token that every request must carry.")] = None,
    shard_token_file: Annotated[str | None, typer.Option(help="File with the token that the shards want.")] = None,
    shard_timeout: Annotated[float, typer.Option(min=0.001, callback=finite, help="Seconds that a shard has for an answer.")] = 2.0,
    dead_shard: Annotated[
        str, typer.Option(help="Answer while a shard is dead: refuse (503), or prior (its features count as never seen).")
    ] = "refuse",
    max_candidates: Annotated[int, typer.Option(min=1, max=MOST, help="Maximum number of candidates in a request.")] = 10_000,
    max_body: Annotated[int, typer.Option(min=1, max=MOST, help="Maximum size of a request body in bytes.")] = 8 * 2**20,
    timeout: Annotated[
        float, typer.Option(min=0.001, callback=finite, help="Seconds from a request's first byte to its last, and to its turn.")
    ] = 5.0,
) -> None:
    """Serve CTRs of a model that several servers hold. Asks the shards for the rows of a request, and scores like one server."""
    from pbodl.serving import require_web

    require_web()
    from pbodl.serving.sharing.route import RouteSettings
    from pbodl.serving.sharing.route import route as run
    from pbodl.serving.web.server_limits import Limits

    limits = Limits(body=max_body, candidates=max_candidates, patience=timeout)
    settings = RouteSettings(
        shards=tuple(shard), host=host, port=port, token_file=token_file, limits=limits, log=log_decisions, dead_shard=dead_shard,
        shard_token_file=shard_token_file, shard_timeout=shard_timeout,
    )  # fmt: skip
    run(settings, lambda text: console.print(escape(text), soft_wrap=True), open_decisions)


def open_decisions(address: str) -> Any:
    """The log of decisions at an address: a file that rotates, or a broker."""
    from pbodl.serving.ranking.decision_log import open_file_only
    from pbodl.streaming.sources.event_sink import open_sink

    return open_sink(address) if "://" in address else open_file_only(address)


def up(
    out: Annotated[str, typer.Option(help="Run folder; an existing run continues.")] = "runs/live",
    port: Annotated[int, typer.Option(**PORTS, help="Dashboard port (0 picks a free one).")] = 8080,
    rate: Annotated[float, typer.Option(min=0.001, callback=finite, help="Generated rows per second.")] = 5000.0,
    rows: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="Total number of rows (default: 30 million, or as the run began).")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Kind of learner: threads (one process), or ray for a cluster behind --source.")
    ] = "threads",
    source: Annotated[
        str | None, typer.Option(help="Broker for --engine ray: kafka starts one here, kafka://host:9092/topic names one.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=MOST_WORKERS, help="Number of processes that learn (--engine ray).")] = 2,
    shards: Annotated[int, typer.Option(min=1, max=MOST_WORKERS, help="Number of processes that hold weights (--engine ray).")] = 2,
) -> None:
    """Run the whole system at once. Starts generated traffic, models that learn from it, and a server with a dashboard."""
    from pbodl.serving import require_web

    require_web()
    from pbodl.experiments.live import UpSettings
    from pbodl.experiments.live import up as run

    settings = UpSettings(out=out, port=port, rate=rate, rows=rows)
    if engine not in ENGINES or (engine == "ray") != (source is not None):
        raise InputError("give --engine ray and --source kafka together, for a cluster behind a broker, or neither")
    if source is not None:
        from pbodl.experiments.cluster.cluster_live import ClusterUp, up_cluster

        raise typer.Exit(up_cluster(settings, ClusterUp(source, workers, shards), lambda text: print(text, flush=True)))
    raise typer.Exit(run(settings, lambda text: print(text, flush=True)))
