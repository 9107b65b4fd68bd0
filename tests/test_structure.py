"""The house rules that a machine can keep: layout, sizes, exports, and citations of the paper."""

import ast
import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

import pbodl
from tests.conftest import LONGEST, WITH_JAX

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "pbodl").rglob("*.py"))
ALL_PYTHON = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "benchmarks").rglob("*.py"))]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

MOST_LINES = 400
MOST_FILES = 14  # in a folder, `__init__.py` among them
JUDGED = ("pbodl.kernels", "pbodl.models", "pbodl._jit")
DRAWERS = {"utils", "util", "common", "helpers", "core", "misc"}
EQUATIONS, ALGORITHMS, ERRATA = 28, 2, 8

# `PBODL eq. 9, eq. 10`; also `PBODL eq. 4, 17-19`.
JOIN = r"(?:, | and |; )"
NUMBERS = rf"\d+(?:[-–]\d+)?(?:{JOIN}\d+(?:[-–]\d+)?)*"
CITATION = rf"(?:eq|Alg)s?\. {NUMBERS}"
CITATION_PARTS = rf"(eq|Alg)s?\. ({NUMBERS})"

# Libraries with one home in the package. Numba's is in pyproject.toml, with the direction of imports.
HOMES = {
    "ray": "pbodl/parallel/cluster/ray_actors.py",
    "starlette": "pbodl/serving/",
    "uvicorn": "pbodl/serving/",
    "redis": "pbodl/streaming/sources/redis_stream.py",
    "sklearn": "pbodl/interface/classifier.py",
    "confluent_kafka": "pbodl/streaming/sources/kafka_client.py",
}

# Modules without a test file of their name, and the file that tests them: most are parts of something that is tested as a whole.
TESTED_IN = {
    "commands/upkeep_commands.py": "streaming/upkeep/test_run_migration.py",
    "models/migration/probe.py": "models/migration/test_model_change.py",
    "models/migration/schema_change.py": "models/migration/test_model_change.py",
    "models/migration/shape_change.py": "models/migration/test_model_change.py",
    "publishing/watch_file.py": "streaming/watching/test_field_watch.py",
    "baselines/batch_dnn.py": "baselines/test_batch_models.py",
    "baselines/batch_fm.py": "baselines/test_batch_models.py",
    "baselines/batch_model.py": "baselines/test_batch_models.py",
    "baselines/matchbox_messages.py": "baselines/test_matchbox.py",
    "baselines/online_baseline.py": "baselines/test_contract.py",
    "commands/data_commands.py": "test_cli.py",
    "commands/deploy_command.py": "deployment/test_deploy_folder.py",
    "commands/experiment_commands.py": "commands/test_help.py",
    "commands/model_commands.py": "test_cli.py",
    "commands/serving_commands.py": "serving/test_serve_command.py",
    "commands/shared_options.py": "test_cli.py",
    "commands/training_commands.py": "test_cli.py",
    "data/arrow_columns.py": "data/test_convert.py",
    "data/batch.py": "data/test_convert.py",
    "data/dict_rows.py": "data/test_convert.py",
    "data/guess/guess_toml.py": "data/guess/test_schema_guess.py",
    "data/log/chunks.py": "data/log/test_log_reader.py",
    "data/log/row_blocks.py": "data/log/test_log_reader.py",
    "data/scan/byte_values.py": "data/scan/test_event_columns.py",
    "data/scan/object_walk.py": "data/scan/test_event_columns.py",
    "data/scan/containers.py": "serving/scoring/test_body_scan.py",
    "data/synthetic/world.py": "data/synthetic/test_synthetic_log.py",
    "data/synthetic/world_columns.py": "data/synthetic/test_synthetic_log.py",
    "experiments/ab/ab_report.py": "experiments/ab/test_ab_experiment.py",
    "experiments/ab/ab_summary.py": "experiments/ab/test_ab_experiment.py",
    "experiments/ab/ad_features.py": "experiments/ab/test_ad_world.py",
    "experiments/ab/ad_market.py": "experiments/ab/test_ad_world.py",
    "experiments/ab/arm_figures.py": "experiments/ab/test_arm.py",
    "experiments/ab/lineup.py": "experiments/ab/test_ab_experiment.py",
    "kernels/layers/operations.py": "kernels/test_network.py",
    "experiments/live_training.py": "experiments/test_live.py",
    "experiments/cluster/event_traffic.py": "experiments/cluster/test_cluster_live.py",
    "experiments/cluster/local_broker.py": "experiments/cluster/test_cluster_live.py",
    "serving/sharing/routed_model.py": "serving/sharing/test_router_service.py",
    "serving/sharing/share_client.py": "serving/sharing/test_router_service.py",
    "serving/sharing/share_messages.py": "serving/sharing/test_router_service.py",
    "serving/sharing/share_service.py": "serving/sharing/test_router_service.py",
    "serving/web/replies.py": "serving/web/test_refusals.py",
    "experiments/outcomes.py": "experiments/table1/test_table1_run.py",
    "experiments/table1/entries.py": "experiments/table1/test_table1_run.py",
    "experiments/table1/protocol.py": "experiments/table1/test_table1_run.py",
    "experiments/table1/table1_report.py": "experiments/table1/test_table1_run.py",
    "experiments/table2/table2_report.py": "experiments/table2/test_table2_run.py",
    "experiments/uncertainty/uncertainty_report.py": "experiments/uncertainty/test_uncertainty_run.py",
    "kernels/sample_blocks.py": "kernels/test_network_batches.py",
    "parallel/cluster/durable_shard.py": "parallel/cluster/test_coordinator.py",
    "parallel/cluster/shard_publisher.py": "serving/models/test_parts_follower.py",
    "publishing/parts_manifest.py": "serving/models/test_parts_follower.py",
    "streaming/cluster/cluster_publisher.py": "serving/models/test_parts_follower.py",
    "streaming/cluster/cluster_session.py": "streaming/cluster/test_cluster_service.py",
    "streaming/cluster/stream_actor.py": "streaming/cluster/test_cluster_service.py",
    "streaming/stream_reader.py": "streaming/test_online_service.py",
    "parallel/cluster/ray_actors.py": "parallel/cluster/test_on_ray.py",
    "parallel/cluster/worker_slot.py": "parallel/cluster/test_coordinator.py",
    "parallel/cluster_prior.py": "parallel/cluster/test_coordinator.py",
    "parallel/threads/copies.py": "parallel/threads/test_learning_threads.py",
    "publishing/lattice.py": "publishing/test_compact.py",
    "experiments/decisions/decision_reader.py": "experiments/decisions/test_policy_value.py",
    "serving/dashboard/feature_lists.py": "serving/test_dashboard.py",
    "serving/dashboard/routes.py": "serving/test_dashboard.py",
    "serving/web/http_messages.py": "serving/web/test_refusals.py",
    "serving/models/followed_models.py": "serving/test_several_models.py",
    "serving/models/served_models.py": "serving/models/test_models_file.py",
    "serving/models/worker_models.py": "serving/test_several_models.py",
    "serving/ranking/decision_events.py": "serving/ranking/test_deciding.py",
    "serving/ranking/rank_messages.py": "serving/ranking/test_deciding.py",
    "serving/ranking/shadows.py": "serving/ranking/test_deciding.py",
    "serving/web/model_choice.py": "serving/ranking/test_deciding.py",
    "serving/scoring/candidate_kernels.py": "serving/scoring/test_predictor.py",
    "serving/scoring/packed_rows.py": "serving/models/test_shared_versions.py",
    "serving/web/server_limits.py": "serving/web/test_refusals.py",
    "serving/web/server_metrics.py": "serving/web/test_http_service.py",
    "streaming/event_texts.py": "streaming/test_reads.py",
    "streaming/same_run.py": "streaming/test_stream_learner.py",
    "streaming/sources/file_order.py": "streaming/sources/test_followed_files.py",
    "streaming/sources/kafka_client.py": "streaming/sources/test_kafka_topic.py",
    "streaming/sources/kafka_sink.py": "streaming/sources/test_kafka_topic.py",
    "streaming/sources/redis_gaps.py": "streaming/sources/test_redis_stream.py",
    "streaming/sources/row_file.py": "streaming/sources/test_followed_files.py",
    "streaming/sources/text_tail.py": "streaming/sources/test_followed_files.py",
    "streaming/join/join_rules.py": "streaming/join/test_click_join.py",
    "streaming/metrics_board.py": "streaming/test_online_service.py",
    "streaming/plain_events.py": "streaming/test_events.py",
    "streaming/sources/event_source.py": "streaming/sources/test_followed_files.py",
    "training/inspect/inspection_tables.py": "training/inspect/test_inspection.py",
    "training/presets.py": "test_cli.py",
    "training/report/page.py": "training/report/test_training_report.py",
}
DECLARATIONS = {"errors.py"}  # nothing to test


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported_modules(path: Path) -> set[str]:
    """Full names of all modules that a file imports, and of the names it takes from them."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_files_are_small():
    sizes = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in ALL_PYTHON}
    too_long = {name: size for name, size in sizes.items() if size > MOST_LINES}
    assert not too_long, f"split these files; {MOST_LINES} lines are the most: {too_long}"


def test_folders_are_small():
    sizes = Counter(name_of(path.parent) for path in SOURCES)
    crowded = {folder: size for folder, size in sizes.items() if size > MOST_FILES}
    assert not crowded, f"group the files of these folders; {MOST_FILES} are the most: {crowded}"


def test_modules_have_names_of_their_own():
    repeated = repeated_names((path.stem, path) for path in SOURCES if path.stem != "__init__")
    assert not repeated, f"give these modules different names: {repeated}"


def test_classes_have_names_of_their_own():
    classes = (
        (node.name, path)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    repeated = repeated_names(classes)
    assert not repeated, f"give these classes different names: {repeated}"


def repeated_names(named: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that stand in several files, and in which."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, path in named:
        places[name].append(name_of(path))
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def test_no_drawers():
    drawers = [name_of(path) for path in ALL_PYTHON if DRAWERS & {path.stem, path.parent.name}]
    assert not drawers, f"name these files after what they hold: {drawers}"


def test_modules_say_what_they_hold():
    silent = []
    for path in ALL_PYTHON:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if tree.body and not ast.get_docstring(tree):
            silent.append(name_of(path))
    assert not silent, f"start these files with a docstring: {silent}"


def test_tests_mirror_the_package():
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    strangers = [str(folder) for folder in folders if not (ROOT / "pbodl" / folder).is_dir()]
    assert not strangers, f"these folders of tests have no counterpart in pbodl/: {strangers}"


def test_modules_have_tests_of_their_name():
    tests = ROOT / "tests"
    modules = {path.relative_to(ROOT / "pbodl") for path in SOURCES if path.stem != "__init__"}
    without = {path.as_posix() for path in modules if not (tests / path.parent / f"test_{path.stem.lstrip('_')}.py").exists()}
    missing = sorted(without - set(TESTED_IN) - DECLARATIONS)
    assert not missing, f"write a test file of the same name for these, or name the one that tests them in TESTED_IN: {missing}"
    stale = sorted((set(TESTED_IN) | DECLARATIONS) - without)
    assert not stale, f"these are gone, or have test files of their own; take them from TESTED_IN: {stale}"
    absent = sorted({name for name in TESTED_IN.values() if not (tests / name).exists()})
    assert not absent, f"these files in TESTED_IN do not exist: {absent}"


def test_folders_are_packages():
    # Two test files may then share a name, and import-linter sees all of the package.
    folders = {path.parent for path in ALL_PYTHON}
    bare = [name_of(folder) for folder in folders if not (folder / "__init__.py").exists()]
    assert not bare, f"add an __init__.py to: {bare}"


def test_layout_is_documented():
    named = set(re.findall(r"^\| `(\w+(?:/|\.py))` \|", ARCHITECTURE, flags=re.MULTILINE))
    folders = {path.parent.name + "/" for path in SOURCES if path.parent.parent == ROOT / "pbodl"}
    files = {path.name for path in SOURCES if path.parent == ROOT / "pbodl"} - {"__init__.py"}
    assert named == folders | files, "`Layout` in docs/architecture.md is wrong"


@pytest.mark.parametrize("library", HOMES)
def test_libraries_stay_at_home(library):
    abroad = [
        name_of(path)
        for path in SOURCES
        if any(module.split(".")[0] == library for module in imported_modules(path))
        and not name_of(path).startswith(HOMES[library])
    ]
    assert not abroad, f"{library} is imported in {HOMES[library]} alone, and not in: {abroad}"


def test_oracles_do_not_know_the_kernels():
    for path in sorted((ROOT / "tests" / "oracles").rglob("*.py")):
        known = {name for name in imported_modules(path) if name.startswith(JUDGED)}
        assert not known, f"{name_of(path)} must not use what it is to judge: {known}"


def test_exports_are_documented():
    documented = re.findall(r"^\| `pbodl\.(\w+)` \|", ARCHITECTURE, flags=re.MULTILINE)
    assert sorted(documented) == sorted(pbodl.__all__), "`Public names` in docs/architecture.md is wrong"


def test_exports_are_all_that_is_public():
    given = {name: getattr(pbodl, name) for name in dir(pbodl) if name not in ("Any", "TYPE_CHECKING")}
    public = {name for name, value in given.items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public == {name for name in pbodl.__all__ if not name.startswith("_")}


def test_links_in_documents_lead_somewhere():
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
    for document in documents:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8")):
            if "://" not in target and not target.startswith("mailto:"):
                assert (document.parent / target).exists(), f"{name_of(document)}: no file {target}"


def numbers(text: str) -> list[int]:
    """The numbers meant by `4, 17-19`."""
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:[-–]E?(\d+))?", text):
        found += range(int(first), int(last or first) + 1)
    return found


def citations(text: str) -> set[str]:
    """All that a source cites, as `eq. 7`, `Alg. 1`, `E3`."""
    text = re.sub(r"\s*\n\s*(?:# ?)?", " ", text)
    cited = set()
    for chain in re.findall(rf"PBODL ({CITATION}(?:{JOIN}{CITATION})*)", text):
        for kind, list_of_numbers in re.findall(CITATION_PARTS, chain):
            cited |= {f"{kind}. {n}" for n in numbers(list_of_numbers)}
    for list_of_numbers in re.findall(r"[Ee]rrat(?:um|a) (E\d+(?:(?:[-–]|, | and )E\d+)*)", text):
        cited |= {f"E{n}" for n in numbers(list_of_numbers)}
    return cited


def paper_map() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """From docs/paper-map.md: the files of every label, and the functions named for it."""
    files: dict[str, set[str]] = defaultdict(set)
    functions: dict[str, set[str]] = defaultdict(set)
    header: list[str] = []
    for line in (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            header = []
        elif not header:
            header = cells
        elif re.fullmatch(r"eq\. \d+|Alg\. \d+|E\d+", cells[0]):
            row = dict(zip(header, cells, strict=True))
            files[cells[0]] |= set(re.findall(r"`(pbodl/[\w/]+\.py)`", row["file"]))
            functions[cells[0]] |= set(re.findall(r"`([\w.]+)", row.get("function", "")))
    return files, functions


def test_citations_are_understood():
    text = """PBODL eq. 9, eq. 10 and eq. 12; (PBODL
    Alg. 2, erratum E3), PBODL eq. 17-19, 21, errata E1 and E2."""
    ref = {"eq. 9", "eq. 10", "eq. 12", "Alg. 2", "E3", "eq. 17", "eq. 18", "eq. 19", "eq. 21", "E1", "E2"}
    assert citations(text) == ref


def test_paper_map_is_complete():
    files, _ = paper_map()
    ref = {f"eq. {n}" for n in range(1, EQUATIONS + 1)}
    ref |= {f"Alg. {n}" for n in range(1, ALGORITHMS + 1)} | {f"E{n}" for n in range(1, ERRATA + 1)}
    assert set(files) == ref


def test_citations_agree_with_the_paper_map():
    files, _ = paper_map()
    mapped = {(name, label) for label, names in files.items() for name in names}
    sources = {name_of(path): path.read_text(encoding="utf-8") for path in SOURCES}
    cited = {(name, label) for name, text in sources.items() for label in citations(text)}
    assert not cited - mapped, f"cited in the code, but not in docs/paper-map.md: {sorted(cited - mapped)}"
    assert not mapped - cited, f"in docs/paper-map.md, but not cited in the file: {sorted(mapped - cited)}"


def test_functions_of_the_paper_map_exist():
    files, functions = paper_map()
    for label, names in functions.items():
        text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in files[label])
        for name in names:
            defined = re.search(rf"\b(?:def|class) {name.split('.')[-1]}\b", text)
            assert defined, f"{label}: {name} is not in {sorted(files[label])}"


def test_the_longest_files_exist():
    assert [name for name in (*LONGEST, *WITH_JAX) if not (ROOT / name).is_file()] == []
