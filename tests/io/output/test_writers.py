"""Every place that writes a file does so through a guard.

The guards are ``atomic_directory`` and ``atomic_write``, ``update_record``, ``open_inside`` and the
locks: ownership, links, digests, modes and complete results are theirs. A function that writes
outside of them fails the test until it uses them, or until it is listed with the reason.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
GUARDS = ("zoo/io/output/", "zoo/io/locks.py")
METHODS = {
    *("write_text", "write_bytes", "touch", "mkdir", "rmdir", "unlink", "rename", "symlink_to"),
    *("hardlink_to", "chmod", "tofile", "save_file", "copyfile", "copytree", "copy2", "copy"),
    *("move", "rmtree", "makedirs", "symlink", "link", "truncate", "ftruncate", "pwrite"),
    *("mkstemp", "mkdtemp"),
}
STAGED = "within the staging directory of atomic_directory"
ATOMIC = "the folder of a file that atomic_write writes"
TEMPORARY = "within a temporary directory of this process"
STREAM = "replaces a standard stream by /dev/null"
CLEANING = "within the directory of what is being cleaned, under its lock"
COPIES = "copies of remote files in the cache, staged or under a lock"
UPLOADED = "outputs with a URL before they are uploaded, under their lock"
DOWNLOAD = "a partial download in the cache of huggingface_hub, under its lock"
# place -> why it writes by itself
LISTED = {
    "converters/zoo_converters/hdf5_arrays.py:decode_arrays": "a pipe to the parent process",
    "zoo/adapted_models/write.py:write_adapter": STAGED,
    "zoo/adapters/graph_inputs.py:write_adapters": STAGED,
    "zoo/adapters/merge.py:merge": STAGED,
    "zoo/adapters/peft/write.py:write_peft": STAGED,
    "zoo/api/comparing_runs.py:compare_models": TEMPORARY,
    "zoo/api/evaluating_suites.py:SuiteCall._write_predictions": ATOMIC,
    "zoo/cleaning/apply_rules.py:ApplyRules.__call__": CLEANING,
    "zoo/cleaning/clean.py:_link_or_copy": STAGED,
    "zoo/cleaning/clean.py:_publish": STAGED,
    "zoo/cleaning/clean.py:_run_stage": CLEANING,
    "zoo/cleaning/clean.py:_work_directory": "the directory itself, which must hold a plan",
    "zoo/cleaning/clean.py:clean": CLEANING,
    "zoo/cleaning/executors.py:_run_in_process": CLEANING,
    "zoo/cleaning/executors.py:_start_server": STREAM,
    "zoo/cleaning/executors.py:forget_errors": CLEANING,
    "zoo/cleaning/parts.py:WritePart.__call__": CLEANING,
    "zoo/cleaning/repeats.py:FindRepeats.__call__": CLEANING,
    "zoo/cleaning/substrings.py:FindRuns.__call__": CLEANING,
    "zoo/cleaning/substrings.py:HashRuns.__call__": CLEANING,
    "zoo/cli/output.py:abandon_stdout": STREAM,
    "zoo/cli/output.py:prepare": STREAM,
    "zoo/cli/parameter_types.py:InputFile.convert": TEMPORARY,
    "zoo/conformance/golden.py:Golden.write": "a file that the author of a plugin names",
    "zoo/conformance/plugin_checks.py:_main": TEMPORARY,
    "zoo/conformance/smoke_train.py:_finetune": TEMPORARY,
    "zoo/conformance/smoke_train.py:resume_finetune": TEMPORARY,
    "zoo/conformance/tokenizer_checks.py:TokenizerChecks._write_config": TEMPORARY,
    "zoo/conformance/tokenizer_checks.py:TokenizerChecks._write_piece_model": TEMPORARY,
    "zoo/conformance/tokenizer_checks.py:TokenizerChecks._write_tokenizer": TEMPORARY,
    "zoo/conformance/weight_checks.py:WeightChecks.check_state_dict_round_trip": TEMPORARY,
    "zoo/conversion/cache.py:_copy_export": STAGED,
    "zoo/conversion/safetensors_writer.py:create": STAGED,
    "zoo/conversion/safetensors_writer.py:write_weights": STAGED,
    "zoo/conversion/sentence_modules.py:_write_head": STAGED,
    "zoo/conversion/sentence_modules.py:write_modules": STAGED,
    "zoo/conversion/writers.py:HubWriter.write_manifest": STAGED,
    "zoo/conversion/writers.py:ZooWriter.write_manifest": STAGED,
    "zoo/conversion/writers.py:_write": STAGED,
    "zoo/data/build.py:SplitWriter.__init__": STAGED,
    "zoo/data/build.py:_File.__init__": STAGED,
    "zoo/data/build.py:build": STAGED,
    "zoo/data/cached_arrays.py:_write_array": STAGED,
    "zoo/data/cached_arrays.py:_write_growing": STAGED,
    "zoo/data/encoding.py:_pool": TEMPORARY,
    "zoo/data/many_files/folder.py:JobFolder.claim": "the folder of files that guards write",
    "zoo/distillation/static_student.py:write_static_student": STAGED,
    "zoo/distillation/targets.py:write_targets": STAGED,
    "zoo/distillation/teachers/record_file.py:RecordFile.write_block": "a file of open_inside",
    "zoo/distillation/teachers/teacher_cache.py:TeacherCache._open_own_file": "checked before",
    "zoo/exporting/fastest.py:save_speeds": "the parent of a file of atomic_write",
    "zoo/exporting/gate.py:TorchReference._keep": STAGED,
    "zoo/exporting/graph/write.py:write_graphs": STAGED,
    "zoo/exporting/layout.py:write_hub_files": STAGED,
    "zoo/exporting/quantization/variants.py:QuantizedCopies.write": STAGED,
    "zoo/exporting/targets/ctranslate2/write.py:write_model": STAGED,
    "zoo/exporting/targets/onnx/variants.py:_remove_graphs": STAGED,
    "zoo/exporting/targets/onnx/write.py:write_quantized_graphs": STAGED,
    "zoo/exporting/targets/openvino/write.py:MixedPrecisionIr.write": STAGED,
    "zoo/exporting/targets/openvino/write.py:write_ir": STAGED,
    "zoo/exporting/targets/static/export.py:distil": TEMPORARY,
    "zoo/exporting/targets/static/export.py:write_vectors": STAGED,
    "zoo/finetuning/from_scratch.py:train_comparison": STAGED,
    "zoo/finetuning/runs.py:_copy_model": STAGED,
    "zoo/hub/download.py:Transfer._discard": DOWNLOAD,
    "zoo/hub/download.py:Transfer.body": DOWNLOAD,
    "zoo/hub/download.py:Transfer.on_request": DOWNLOAD,
    "zoo/hub/fetch.py:_Checkout._download": DOWNLOAD,
    "zoo/inference/processing/table_records.py:spooled_records": TEMPORARY,
    "zoo/inspection/examples.py:example_config.first_documents": TEMPORARY,
    "zoo/io/cached_files.py:_write": STAGED,
    "zoo/io/digests/background.py:BackgroundHasher.create": STAGED,
    "zoo/io/digests/verified.py:_store": "a cache that is recomputed when it is damaged",
    "zoo/io/remote/cache.py:_copy_of": COPIES,
    "zoo/io/remote/cache.py:_link": STAGED,
    "zoo/io/remote/cache.py:_link_copies": COPIES,
    "zoo/io/remote/cache.py:_make_snapshot": STAGED,
    "zoo/io/remote/client.py:_copy": COPIES,
    "zoo/io/remote/eviction.py:_remove_unlinked": COPIES,
    "zoo/io/remote/publish.py:RemoteOutput._check_replaced": UPLOADED,
    "zoo/io/remote/publish.py:RemoteOutput._discard": UPLOADED,
    "zoo/io/remote/publish.py:RemoteOutput._pull": UPLOADED,
    "zoo/io/remote/publish.py:RemoteOutput._pull_names": UPLOADED,
    "zoo/io/remote/publish.py:RemoteOutput._require_same_job": UPLOADED,
    "zoo/io/remote/publish.py:RemoteOutput.begin": UPLOADED,
    "zoo/io/remote/publish.py:_download": UPLOADED,
    "zoo/io/remote/publish.py:_remove_empty_folders": UPLOADED,
    "zoo/io/signals.py:leave_lost_terminal": STREAM,
    "zoo/io/untrusted.py:_StandardErrorRedirect.release": "an unnamed temporary file",
    "zoo/plugins/scaffold.py:write_project": STAGED,
    "zoo/plugins/settings.py:update_settings": "the parent of a file of update_record",
    "zoo/position_growth/grow.py:_write_manifest": STAGED,
    "zoo/position_growth/lengthen.py:_write": STAGED,
    "zoo/position_growth/writing.py:write_side_files": STAGED,
    "zoo/probing/layers.py:LayerReader.read": TEMPORARY,
    "zoo/probing/run_checkpoints.py:write_as_model": TEMPORARY,
    "zoo/probing/similarity.py:compare_layers": TEMPORARY,
    "zoo/retokenization/retokenize.py:_write": STAGED,
    "zoo/retokenization/tokenizer.py:_existing": TEMPORARY,
    "zoo/suites/answers.py:AnsweredTask.prepare_training": ATOMIC,
    "zoo/tasks/pet/soft_labels.py:write_soft_labels": STAGED,
    "zoo/tokenizers/train.py:train": STAGED,
    "zoo/training/callbacks/logs.py:LoggingCallback.on_train_begin": "a file of open_inside",
    "zoo/training/checks.py:check_resume": TEMPORARY,
    "zoo/training/continuation.py:_copy_checkpoint": STAGED,
    "zoo/training/continuation.py:copy_state": STAGED,
    "zoo/training/directory.py:new_directory": STAGED,
    "zoo/training/directory.py:set_aside": "a rename to a free name, after check_set_aside",
    "zoo/training/logging/jsonl.py:JsonlLogger.truncate": "a file of open_inside",
    "zoo/training/logging/jsonl.py:_open": "a file of open_inside",
    "zoo/training/mixture.py:_train_on_all": STAGED,
    "zoo/training/multi_stage.py:MultiStageRun._train_stages": "a link within the run's directory",
    "zoo/training/multi_stage.py:MultiStageRun.start": STAGED,
    "zoo/training/seeds.py:train_seeds": STAGED,
    "zoo/training/state/checkpoints.py:_separate_optimizer_shards": STAGED,
    "zoo/training/state/checkpoints.py:drop_optimizer_states": STAGED,
    "zoo/training/state/checkpoints.py:link_or_copy": STAGED,
    "zoo/training/state/checkpoints.py:write_main_files": STAGED,
    "zoo/training/state/checkpoints.py:write_tensors": STAGED,
    "zoo/training/state/final_model.py:check_writable": "within a staging path of staged_path",
    "zoo/training/state/final_model.py:save_final_model": STAGED,
    "zoo/training/state/recovery.py:_set_aside": "a checkpoint of the run, under its lock",
    "zoo/training/streaming/data.py:_held_out_corpus": TEMPORARY,
}
OS_ONLY = {"replace", "remove"}  # methods of texts and sets as well
CALL = re.compile(rf"\b(?:os|shutil)\.|\b(?:open|{'|'.join(METHODS - {'copy', 'link'})})\(")
WRITING = {"O_CREAT", "O_WRONLY", "O_RDWR", "O_APPEND", "O_TRUNC"}


def _mode(call: ast.Call, position: int) -> str:
    values = [*call.args[position : position + 1]]
    values += [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    return next((str(v.value) for v in values if isinstance(v, ast.Constant)), "r")


def _writes(call: ast.Call) -> str | None:
    """Return what a call writes with, or ``None``."""
    function = call.func
    if isinstance(function, ast.Name):
        if function.id == "open":
            return "open" if set(_mode(call, 1)) & set("wax+") else None
        return function.id if function.id in {"save_file", *METHODS} - {"copy", "link"} else None
    if not isinstance(function, ast.Attribute):
        return None
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    name = function.attr
    if name == "open" and owner == "os":
        flags = {n.attr for arg in call.args for n in ast.walk(arg) if isinstance(n, ast.Attribute)}
        return "os.open" if flags & WRITING else None
    if name == "open":
        return "open" if set(_mode(call, 0)) & set("wax+") else None
    if name in OS_ONLY | {"copy", "link"}:
        return f"{owner}.{name}" if owner in ("os", "shutil") else None
    return name if name in METHODS else None


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.Call]]:
    for node in ast.iter_child_nodes(tree):
        name = prefix
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{prefix}.{node.name}" if prefix else node.name
        if isinstance(node, ast.Call):
            yield prefix, node
        yield from _functions(node, name)


def places() -> dict[str, set[str]]:
    """Return ``file:function`` -> what it writes with."""
    result: dict[str, set[str]] = {}
    for folder in ("zoo", "converters", "plugins"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            text = path.read_text("utf-8")
            # Most files have no such call, and parsing takes longer.
            if CALL.search(text) and not name.startswith(GUARDS):
                for function, call in _functions(ast.parse(text)):
                    if written := _writes(call):
                        result.setdefault(f"{name}:{function}", set()).add(written)
    return result


def test_every_place_that_writes_uses_a_guard_or_is_listed_with_a_reason() -> None:
    found = places()
    assert len(found) > 20
    assert sorted(found.keys() - LISTED.keys()) == []
    assert sorted(LISTED.keys() - found.keys()) == []
