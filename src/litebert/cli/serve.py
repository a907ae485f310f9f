"""`litebert serve`: models over HTTP, and a page to try them on."""

from typing import Annotated

import typer

from litebert.cli.show import Precise
from litebert.config import UserError


def serve(
    models: Annotated[list[str], typer.Argument(metavar="MODEL…", help="Folders or hub names, or NAME=FOLDER.")],
    port: Annotated[int, typer.Option(help="0: any that is free.", min=0, max=65535)] = 8000,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0: all there are.")] = "127.0.0.1",
    api_key: Annotated[
        str | None, typer.Option(envvar="LITEBERT_API_KEY", help="Clients must send it; better set as a variable.")
    ] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu; auto takes a GPU where there is one.")] = "auto",
    precision: Precise = None,
    body: Annotated[int, typer.Option(metavar="BYTES", help="The largest request.")] = 1 << 20,
    text: Annotated[int, typer.Option(metavar="CHARACTERS", help="The longest text.")] = 10_000,
    texts: Annotated[int, typer.Option(metavar="N", help="Texts of a request.")] = 32,
    queue: Annotated[int, typer.Option(metavar="N", help="Requests inside at once; more get 503.")] = 256,
    per_client: Annotated[
        int, typer.Option(metavar="N", help="Of those, from one address; more get 429. 0: no bound.")
    ] = 128,
    seconds: Annotated[float, typer.Option(help="In which a request must have arrived (408).")] = 10.0,
    wait: Annotated[float, typer.Option(metavar="MILLISECONDS", help="Waited for others to batch with.")] = 2.0,
    pieces: Annotated[int, typer.Option(metavar="N", help="That go through a model together, about.")] = 2048,
) -> None:
    """Serve models: fill, classify, tag, answer, choose, embed, as their heads allow. Stops gracefully at Ctrl-C."""
    if api_key == "":
        raise UserError("the key is empty; give one of some length, or none")
    from litebert.serve.app import Service
    from litebert.serve.limits import Limits
    from litebert.serve.models import asks_of, load_all
    from litebert.serve.run import address, listen
    from litebert.serve.run import serve as run
    from litebert.train.processes import pick_device

    limits = Limits(
        body=body,
        text=text,
        texts=texts,
        queue=queue,
        per_client=per_client,
        seconds=seconds,
        wait=wait,
        pieces=pieces,
    )
    loaded = load_all(models, pick_device(device), precision)
    service = Service(loaded, limits, api_key)
    with listen(host, port) as listening:
        for name, model in loaded.items():
            typer.echo(f"{name}: {', '.join(asks_of(model))}")
        if api_key is None and host not in ("127.0.0.1", "::1", "localhost"):
            typer.echo(f"anyone who reaches {host} can ask; to allow only those with a key: --api-key", err=True)
        typer.echo(f"serving at {address(listening)}")
        run(service, listening)
    typer.echo("stopped; every request that was taken has its answer")
