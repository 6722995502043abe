"""polyclinic serve: a model package behind a page, HTTP and DICOM; needs no torch."""

from contextlib import ExitStack
from typing import Annotated

import typer

from polyclinic.cli.code import say
from polyclinic.cli.predict import ModelFile, Quick, Threads

MISSING = "serving needs more packages: pip install 'polyclinic[serve]'"


def serve(
    model: ModelFile,
    host: Annotated[
        str, typer.Option(help="The address to serve; all but loopback need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Its port; 0 is any.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(envvar="POLYCLINIC_TOKEN", help="What requests must bring along."),
    ] = None,
    megabytes: Annotated[float, typer.Option(min=0.001, help="The most one image may have.")] = 64,
    seconds: Annotated[float, typer.Option(min=0.1, help="The most one request may take.")] = 60,
    dicom: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Also receive DICOM, at this port.")
    ] = None,
    send_to: Annotated[
        str | None, typer.Option(help="Where answers to DICOM go.", metavar="AE@HOST:PORT")
    ] = None,
    title: Annotated[
        str, typer.Option("--ae", help="The AE title under which DICOM is received.")
    ] = "POLYCLINIC",
    dicom_from: Annotated[
        list[str],
        typer.Option(help="An AE title that may send; default: all of this machine.", metavar="AE"),
    ] = [],  # noqa: B006 (typer wants the plain value)
    quick: Quick = False,
    threads: Threads = 0,
) -> None:
    """Serve a model: a page to upload images to, HTTP for programs, DICOM for scanners."""
    from polyclinic.predict import load

    try:
        from polyclinic.serve.dicom_node import Listening, check_callers, dicom_node, node_called
        from polyclinic.serve.guard import check_token
        from polyclinic.serve.web import (
            Limits,
            application,
            bound,
            run_until_ended,
            url_of,
            web_server,
        )
    except ImportError as error:
        raise ValueError(MISSING) from error
    check_token(host, token)
    if (dicom is None) != (send_to is None):
        raise ValueError("--dicom and --send-to go together: where to listen, where answers go")
    to = node_called(send_to) if send_to else None
    if to:
        check_callers(host, dicom_from)
    limits = Limits(megabytes, seconds)
    loaded = load(model, threads=threads)
    app = application(loaded, limits, token=token, flips=not quick)
    with ExitStack() as stack:
        listening = stack.enter_context(bound(host, port))
        if to and dicom is not None:
            where = Listening(host, dicom, title, tuple(dicom_from), megabytes, seconds)
            node = dicom_node(loaded, where, to, say, flips=not quick)
            say(f"DICOM: {title} at port {stack.enter_context(node)}, answers to {send_to}")
        say(f"{loaded.facts.title}: {url_of(listening)} (Ctrl-C ends it)")
        run_until_ended(web_server(app, limits), listening)
    say("ended")
