"""Torture the queue in a simulated world: `python -m tests.torture --help`."""

import argparse
import sys
import time
from functools import partial

from tests.torture import commands
from tests.torture.planted import BUGS, planted
from tests.torture.scenarios import SCENARIOS
from tests.torture.search import Budget, Search
from tests.torture.setups import Kind
from tests.torture.walks import walk

ME = "python -m tests.torture"
TOLD = 60  # lines of a story


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=ME, description=__doc__)
    kinds = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--workers", type=int, default=commands.cores(), help="processes (default: one per core)")
    common.add_argument("--plant", choices=BUGS, help="with this bug in the product")

    walks = kinds.add_parser("walks", parents=[common], help="seeded random walks")
    walks.add_argument("--runs", type=int, help="how many (default: 1000, or as many as --seconds allow)")
    walks.add_argument("--seconds", type=float, help="for how long")
    walks.add_argument("--seed", type=int, default=0, help="the first seed; each run adds 1 (default: 0)")
    walks.add_argument("--shared", action="store_true", help="walks in which most jobs share instances")
    walks.add_argument("--interactive", action="store_true", help="walks with a policy and many interactive jobs")
    walks.add_argument("--regions", action="store_true", help="walks with pools in two regions, one of which may break")
    walks.add_argument("--throttled", action="store_true", help="DynamoDB throttles partition keys in each walk")
    walks.add_argument("--trace", action="store_true", help="one walk only, told step by step")

    search = kinds.add_parser("search", parents=[common], help="systematic search of small scenarios")
    search.add_argument("--seconds", type=float, default=120, help="for each scenario, at most (default: 120)")
    search.add_argument("--deviations", type=int, default=3, help="faults and switches in a run with faults")
    search.add_argument("--scenario", choices=SCENARIOS, help="with --choices: the one to replay")
    search.add_argument("--choices", default="", help="numbers with commas between: the choices to replay")

    hunt = kinds.add_parser("planted", help="find seventy-six planted bugs, each within 3,000 walks or by the search")
    hunt.add_argument("--runs", type=int, default=3000, help="walks at most (default: 3000)")
    hunt.add_argument("--seconds", type=float, default=60, help="of search in a scenario, at most (default: 60)")
    hunt.add_argument("--workers", type=int, default=commands.cores())
    return parser


def run_walks(options: argparse.Namespace) -> bool:
    kind = next((kind for kind in Kind if getattr(options, kind, False)), Kind.PLAIN)
    if options.trace:
        with planted(options.plant):
            outcome = walk(options.seed, trace=True, kind=kind, throttled=options.throttled)
        print(outcome.violation or "no violation")
        return outcome.violation is None
    runs = options.runs if options.runs or options.seconds else 1000
    done = commands.walks(
        options.seed,
        runs,
        options.seconds,
        options.workers,
        options.plant,
        kind=kind,
        throttled=options.throttled,
    )
    print(f"{done.runs:,} runs with {done.faults:,} faults: {'a violation' if done.violation else 'no violation'}")
    if done.violation:
        plant = f" --plant {options.plant}" if options.plant else ""
        of_kind = "" if kind is Kind.PLAIN else f" --{kind}"
        of_kind += " --throttled" if options.throttled else ""
        tell(done.violation, done.story, f"{ME} walks --seed {done.seed} --trace{of_kind}{plant}")
    return done.violation is None


def run_search(options: argparse.Namespace) -> bool:
    budget = Budget(deviations=options.deviations)
    plant = f" --plant {options.plant}" if options.plant else ""
    if options.scenario:
        search = Search(SCENARIOS[options.scenario], budget)
        with planted(options.plant):
            search.run(bytes(map(int, filter(None, options.choices.split(",")))))
        print("\n".join(search.found.story), search.found.violation or "no violation", sep="\n")
        return search.found.violation is None
    well = True
    print(f"{len(SCENARIOS)} scenarios, {options.seconds:g} seconds each at most", flush=True)
    for name, found, left in commands.searches(budget, options.seconds, options.workers, options.plant):
        rest = f"; {left:,} runs were left, all with {found.deviations} deviations or more" if left else "; complete"
        print(
            f"{name}: {found.runs:,} runs with {found.faults:,} faults through {found.states:,} states{rest}",
            flush=True,
        )
        if found.violation:
            well = False
            choices = ",".join(map(str, found.choices))
            tell(found.violation, found.story, f"{ME} search --scenario {name} --choices {choices}{plant}")
    return well


def run_planted(options: argparse.Namespace) -> bool:
    hunts = (partial(commands.hunt, name, options.runs, options.seconds) for name in BUGS)
    missed = 0
    for name, how, violation in commands.shared_out(hunts, options.workers):
        missed += how is None
        print(f"{name}: {f'found by {how}: {violation}' if how else 'NOT FOUND'}"[:200], flush=True)
    return not missed


def tell(violation: str, story: tuple[str, ...] | list[str], replay: str) -> None:
    """A violation: its story, the invariant, and how to see it again."""
    print(*(["..."] if len(story) > TOLD else []), *story[-TOLD:], sep="\n")
    print(f"\nVIOLATION: {violation}\nReplay it: {replay}")


def main() -> int:
    options = build_parser().parse_args()
    began = time.monotonic()
    commands_of = {"walks": run_walks, "search": run_search, "planted": run_planted}
    try:
        well = commands_of[options.command](options)
    except KeyboardInterrupt:
        well = True
        print("interrupted: what is told above is all that was done")
    print(f"{time.monotonic() - began:,.0f} seconds")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
