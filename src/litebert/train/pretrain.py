"""Shards and a recipe -> a pre-trained encoder, in a directory from which a killed run goes on bit for bit."""

import json
import math
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from litebert.model.cost import training_flops
from litebert.recipe import Recipe
from litebert.strict import UserError
from litebert.train.answers import kept_answers
from litebert.train.capture import Replay
from litebert.train.growth import grown, with_layers
from litebert.train.heldout import PAIR, evaluate, protocol, unscored
from litebert.train.objective import PRECISIONS
from litebert.train.peak import known_peak
from litebert.train.processes import Processes
from litebert.train.run import MODEL, PLAN
from litebert.train.schedule import Stage, stages, steps_in
from litebert.train.session import Say, Session
from litebert.train.start import Prepared, agreed, environment, load_teacher, open_run, prepare
from litebert.train.steps import Done, Step, Work, one_step, take_steps
from litebert.train.stopping import Stopped, signal_of, signals
from litebert.train.supply import Batched, Part, Places, first_places, updates
from litebert.train.totals import Totals
from litebert.train.trainee import Snapshot, Trainee, assemble, one_type

KERNELS = [  # the dense part of a batch goes to the first that takes it
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
WARM, TIMED = 40, 60  # steps of each phase that measure what a step takes, at most
BLOCK = 4  # steps of those that are timed together
MEASURED = 0.1  # the share of a budget that this may take, more or less
NO_MEMORY = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
SHORT = 3e13  # FLOPs of a step that a GPU does quicker than a host can ask for it


def pretrain(said: Recipe | None, folder: Path, resume: bool, processes: Processes, say: Say) -> dict[str, Any]:
    """Begin a run or go on with one; returns what the finished model scores."""
    recipe, run = open_run(folder, processes, partial(agreed, said, resume, processes))
    try:
        ended = processes.on_lead(lambda: run.ended() if run is not None else None)
        if ended is not None:
            say({"kind": "note", "text": f"this run is finished; its model is in {folder / MODEL}"})
            return ended
        with sdpa_kernel(KERNELS, set_priority=True), signals() as asked:
            prepared = prepare(recipe, run, processes)
            problem = unscored(recipe.data.shards, recipe.data, recipe.model.positions)
            teacher = load_teacher(recipe, processes)
            answers = kept_answers(recipe, teacher, prepared.tokenizer)
            seen = prepared.shards, problem is None
            session = Session(recipe, prepared.tokenizer, processes, run, say, *seen, teacher, answers, asked)
            if run is not None:
                run.append("environment.jsonl", environment(processes))
            for note in (*prepared.notes, *([problem] if problem else [])):
                session.note(note)
            return train(session, prepared)
    except RuntimeError as problem:
        if not any(sign in str(problem) for sign in NO_MEMORY):
            raise
        kept = f"; {run.intact()}" if run is not None else ""
        raise UserError(
            "out of memory; set run.micro_batch lower (examples at once), or run.checkpointing = true, and go on with "
            f"--resume{kept}"
        ) from None
    finally:
        if run is not None:
            run.close()


def train(session: Session, prepared: Prepared) -> dict[str, Any]:
    recipe, run = session.recipe, session.recipe.run
    totals = Totals(session.processes, prepared.totals, peak_of(session), session.terms)
    plan = stages(recipe.phases, fix_steps(session, prepared))
    steps, step, places, every = plan[-1].end, prepared.step, prepared.places, recipe.evaluate.every
    if session.run is not None:
        session.run.start_metrics(step)
    trainee: Trainee | None = None
    for stage in plan:
        if step >= stage.end:
            continue
        trainee, places = enter(session, stage, plan, step, places, trainee or prepared.snapshot)
        if step == 0 and every:
            look(session, trainee, stage, step, recipe.evaluate.examples)
        with closing(updates(session, stage, plan, step, places)) as feed:  # and with it the processes it has
            totals.resume()
            for made in take_steps(feed, trainee.optimizer, work_of(session, trainee, stage)):
                assert isinstance(made.update, Batched)
                step, places, stop = step + 1, made.update.places, made.update.stop
                totals.add(made.done, [part.micro.packed for part in made.update.parts], recipe, stage.phase.passes)
                due = step % run.log_every == 0 or step == steps
                if due or totals.silent():
                    line = totals.line(step, stage, plan, made.update.rate, PAIR[recipe.data.objective], due)
                    line |= {"gradient_bytes": trainee.gradient_bytes}
                    (session.tell if due else session.say)(line)
                if due:
                    check_skips(session, totals)
                if every and step % every == 0 and step < steps:
                    with totals.paused():
                        look(session, trainee, stage, step, recipe.evaluate.examples)
                if step % run.save_every == 0 or step == steps or stop:
                    with totals.paused():
                        check_skips(session, totals)
                        save(session, trainee, step, places, totals)
                if stop and step < steps:
                    session.processes.wait()  # whoever leaves first is a failure to torchrun, which ends the others
                    raise Stopped(step, stop)
                if step == stage.end:
                    break
            totals.pause()
    if trainee is None:  # stopped between its last step and its model
        trainee = assemble(prepared.snapshot, recipe.optimizer, run, session.processes, session.made)
    return finish(session, trainee, plan[-1])


def enter(
    session: Session, stage: Stage, plan: Sequence[Stage], step: int, places: Places, before: Trainee | Snapshot
) -> tuple[Trainee, Places]:
    """A trainee of the stage's depth, and where its batches begin."""
    recipe = session.recipe
    config = with_layers(recipe.model, stage.phase.passes)
    if step == stage.first:
        places = first_places(stage, plan, places)
    if isinstance(before, Trainee):
        if before.network.config == config:
            return before, places
        before = before.snapshot()
    moments: dict[str, Tensor] = {}
    for kind in ("m", "v") if before.moments else ():
        part = {name.removeprefix(f"{kind}."): each for name, each in before.moments.items() if name[0] == kind}
        moments |= {f"{kind}.{name}": each for name, each in grown(part, before.config, config).items()}
    weights = grown(before.weights, before.config, config)
    snapshot = replace(before, config=config, weights=weights, moments=moments)
    return assemble(snapshot, recipe.optimizer, recipe.run, session.processes, session.made), places


def work_of(session: Session, trainee: Trainee, stage: Stage) -> Work[Part]:
    """What one step does. Masked and pair loss are each the mean over the whole batch, whatever part of it is here:
    processes average."""
    processes, recipe = session.processes, session.recipe

    def loss(part: Part) -> tuple[Tensor, Tensor]:
        sums = trainee.model(part.micro).sums()
        weights = part.weights.to(sums.dtype) * processes.ranks
        return (torch.cat([sums[:4:2], sums[4:]]) * weights).sum(), sums

    def work(parts: list[Part]) -> Done:
        return one_step(parts, trainee.model, trainee.optimizer, loss, recipe.optimizer.clip)

    pieces, passes = stage.phase.batch * stage.phase.length, stage.phase.passes
    short = training_flops(recipe.model, passes, pieces, pieces * max(stage.phase.lengths), pieces // 6) < SHORT
    still = recipe.model.dropout == recipe.model.attention_dropout == 0  # not recorded here before it is measured
    alone = processes.ranks == 1 and processes.device.type == "cuda"
    if not (short and still and alone and recipe.run.capture == "auto" and not session.terms):
        return work
    return Replay(work)


def fix_steps(session: Session, prepared: Prepared) -> int:
    """The number of steps: the recipe's, or as many as fit its budget, measured once and written down."""
    recipe, run, processes = session.recipe, session.run, session.processes
    if recipe.run.steps:
        return recipe.run.steps
    known = processes.on_lead(lambda: run.plan() if run is not None else None)
    if known is not None:
        return int(known["steps"])
    session.note("measuring what a step of each phase takes")
    shares = [phase.share for phase in recipe.phases]
    trial = stages(recipe.phases, math.ceil(2 * (WARM + TIMED) * sum(shares) / min(shares)))  # room for it in each
    seconds = [processes.share(seconds_a_step(session, stage, trial, prepared)) for stage in trial]
    steps = steps_in(recipe.phases, seconds, 60 * recipe.run.budget_minutes)
    if run is not None:
        run.write(PLAN, json.dumps({"steps": steps, "seconds_a_step": seconds}, indent=1) + "\n")
    each = ", ".join(f"{1000 * value:.1f} ms" for value in seconds)
    session.note(f"{steps:,} steps fit {recipe.run.budget_minutes:g} minutes (a step: {each})")
    return steps


def seconds_a_step(session: Session, stage: Stage, plan: Sequence[Stage], prepared: Prepared) -> float:
    """Of a trainee that is thrown away. Where steps take long there are fewer of them: what is measured is to take no
    more than a small part of the budget, but for what is compiled. Lengths in turn are measured by whole rounds."""
    trainee, places = enter(session, stage, plan, stage.first, prepared.places, prepared.snapshot)
    most = MEASURED * 60 * session.recipe.run.budget_minutes / len(plan)
    work = work_of(session, trainee, stage)
    with closing(updates(session, stage, plan, stage.first, places)) as feed:
        steps = take_steps(feed, trainee.optimizer, work)
        turns = len(stage.phase.lengths)
        last, quickest = time.perf_counter(), [math.inf] * turns  # of each length
        for done, made in enumerate(islice(steps, WARM), 1):
            leave_if_asked(session, made, prepared.step)
            made.done.norm.item()  # wait for the device where the clock is read
            now = time.perf_counter()
            at = (done - 1) % turns
            (quickest[at],) = session.processes.from_lead(min(quickest[at], now - last))
            last, usually = now, sum(quickest) / turns
            fresh = isinstance(work, Replay) and work.fresh
            if done > turns and not fresh and done * usually > most / 2:  # compiling and recording take as long as many
                break
        left, usual, every = max(turns, min(TIMED, int(most / 2 / usually))), [], []
        while left >= turns:
            size, fresh = min(turns * -(-BLOCK // turns), left - left % turns), False
            for made in islice(steps, size):
                leave_if_asked(session, made, prepared.step)
                fresh |= isinstance(work, Replay) and work.fresh
            made.done.norm.item()
            every.append((time.perf_counter() - last) / size)
            if not fresh:  # later few steps are of a shape that is not recorded yet
                usual.append(every[-1])
            last, left = time.perf_counter(), left - size
        return median(usual) if usual else min(every)


def leave_if_asked(session: Session, made: Step[Part], step: int) -> None:
    assert isinstance(made.update, Batched)
    if made.update.stop:
        session.processes.wait()
        raise Stopped(step, made.update.stop)


def peak_of(session: Session) -> float:
    return session.processes.share(known_peak(session.processes.device, PRECISIONS[session.recipe.run.precision]))


def look(
    session: Session, trainee: Trainee, stage: Stage, step: int, examples: int, kind: str = "held-out"
) -> dict[str, Any]:
    """The held-out documents by the common protocol, and with the run's own masking and lengths beside it. Whoever is
    asked to stop at the final look does not wait for it: all is saved by then."""
    begun, recipe = time.perf_counter(), session.recipe
    if not session.scored:
        return {}

    def done(_: int) -> None:
        if kind == "final" and (stop := signal_of(session.asked, session.processes.total(len(session.asked))[0])):
            session.processes.wait()
            raise Stopped(step, stop)

    common, own = protocol(recipe.data, recipe.model.positions), recipe.examples(stage.phase)
    ask = partial(
        evaluate, trainee.model, recipe.data.shards, processes=session.processes, say=done, types=not recipe.one_text
    )
    line: dict[str, Any] = {"kind": kind, "step": step}
    line |= {"protocol": ask(common, examples), "own": ask(own, min(examples, 2048))}
    if turns := sorted({*stage.phase.turns} - {stage.phase.length}):
        few = min(examples, 2048)
        line["turns"] = {str(length): ask(recipe.examples(stage.phase, length), few) for length in turns}
    if recipe.dial.depths:
        line["depths"] = {str(depth): ask(common, examples, depth=depth) for depth in sorted(set(recipe.dial.depths))}
    session.tell(line | {"time": {"seconds": time.perf_counter() - begun}})
    return line


def check_skips(session: Session, totals: Totals) -> None:
    kept = session.run.intact() if session.run is not None else ""
    advice = "start again from it with a lower rate by --init-from"
    totals.skips.check(session.recipe.run.most_skips, kept, advice, session.processes.mistake)


def save(session: Session, trainee: Trainee, step: int, places: Places, totals: Totals) -> None:
    """A checkpoint. Sharded weights are gathered by all, written by the first."""
    counted, recipe = totals.saved(), session.recipe
    if session.run is None and recipe.run.parallel == "ddp":
        return
    now = trainee.snapshot()
    if session.run is not None:
        at = {str(length): [place.epoch, place.index] for length, place in places.items()}
        where = {"step": step, "places": at, "shards": session.shards}
        state = where | {"optimizer_steps": now.steps, "totals": counted}
        model = (now.config, now.heads, now.weights)
        session.run.save(step, model, session.tokenizer, now.moments, state, recipe.run.keep)


def finish(session: Session, trainee: Trainee, stage: Stage) -> dict[str, Any]:
    """The last look, at many examples, and the model in a folder of its own."""
    line = look(session, trainee, stage, stage.end, session.recipe.evaluate.final_examples, "final")
    now = trainee.snapshot()
    if session.run is not None:
        weights = one_type(now.weights) if session.recipe.one_text else now.weights
        folder = session.run.finish((now.config, now.heads, weights), session.tokenizer)
        session.note(f"the model is in {folder}")
    return line
