import json
import re

import pytest

from prewrite.config import Config
from prewrite.config.loading import check_world, config_hash, dump_config, load_config
from prewrite.errors import UserError
from scripts.write_settings import config_table

MINIMAL = {
    "policy": {"model": "some/model"},
    "data": {"tasks": ["sentiment"]},
    "task_model": {"model": "some/model"},
    "training": {"max_steps": 2},
}


@pytest.fixture
def write(tmp_path):
    """Writes a config file: `MINIMAL`, each given section merged into its own."""

    def write_config(**sections):
        data = {name: dict(section) for name, section in MINIMAL.items()}
        for name, value in sections.items():
            data[name] = {**data.get(name, {}), **value} if isinstance(value, dict) else value
        path = tmp_path / "config.json"
        path.write_text(json.dumps(data), encoding="utf-8")
        return path

    return write_config


def refusal(path, *overrides):
    with pytest.raises(UserError) as caught:
        load_config(path, overrides)
    return str(caught.value)


def test_minimal_config_takes_defaults(write):
    config = load_config(write())
    assert config.training.max_steps == 2
    assert config.rollout.num_generations == 8
    assert config.loss.loss_type == "dapo"


def test_a_search_without_training_needs_a_budget(write):
    for steps in ({"max_steps": 0}, {"max_steps": None, "num_stage_steps": 0}):
        assert "searches among as many untrained rewrites as calls allow" in refusal(write(training=steps))


def test_a_run_that_neither_trains_nor_races_is_refused(write):
    search = ("max_steps=0", "max_task_calls=500")
    assert "nothing is trained and nothing is raced" in refusal(write(), *search, "race_share=0")
    load_config(write(), [*search, "race_share=0.5"])
    load_config(write(), ["race_share=0"])


@pytest.mark.parametrize(
    ("meta", "told"),
    [
        ("", "`meta_instruction` is empty"),
        (" \n", "`meta_instruction` is empty"),
        ("{instruction}{instruction}", "`meta_instruction` has {instruction} 2 times"),
        ("{instruction}", None),
    ],
)
def test_a_meta_instruction_says_something_and_has_one_place(write, meta, told):
    path = write(rollout={"meta_instruction": meta})
    if told is None:
        load_config(path)
    else:
        assert told in refusal(path)


def test_unknown_key_names_the_nearest(write):  # case system-001
    message = refusal(write(training={"learning_rat": 1e-6}))
    assert "training.learning_rat: unknown key" in message
    assert "did you mean training.learning_rate?" in message


def test_unknown_key_far_from_all_is_refused_without_a_guess(write):
    message = refusal(write(zzzzqqqq=1))
    assert "zzzzqqqq: unknown key" in message
    assert "did you mean" not in message


def test_key_in_the_wrong_section_is_told_where_it_belongs(write):
    message = refusal(write(policy={"learning_rate": 1e-6}))
    assert "it stands in the section training: write training.learning_rate" in message


def test_number_as_text_is_refused(write):  # case system-003 leaves the choice between this and reading the number
    message = refusal(write(training={"learning_rate": "1e-6"}))
    assert 'training.learning_rate: given "1e-6"' in message
    assert "without quotes" in message


@pytest.mark.parametrize("truthy_text", ["false", "true", "0", ""])
def test_text_is_no_bool(write, truthy_text):  # case system-004
    assert "policy.gradient_checkpointing: given" in refusal(write(policy={"gradient_checkpointing": truthy_text}))


def test_byte_order_mark_is_read_over(write, tmp_path):  # case system-008
    plain = write()
    marked = tmp_path / "marked.json"
    marked.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes())
    assert load_config(marked) == load_config(plain)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("training", "max_steps", 1.5),
        ("training", "max_steps", True),
        ("training", "max_steps", -1),
        ("training", "learning_rate", -1e-6),
        ("training", "learning_rate", float("nan")),
        ("training", "learning_rate", None),
        ("rollout", "num_generations", 1),
        ("rollout", "temperature", 0),
        ("rollout", "top_p", 1.5),
        ("data", "tasks", "sentiment"),
        ("loss", "loss_type", "ppo"),
        ("loss", "epsilon", 1),
        ("policy", "model", 7),
        ("task_model", "max_failure_share", 2),
    ],
)
def test_wrong_type_or_range_is_refused_by_name(write, section, key, value):
    assert f"{section}.{key}" in refusal(write(**{section: {key: value}}))


def test_a_list_that_a_remote_shell_took_the_quotes_of_is_told(write):
    with pytest.raises(UserError, match=r'given "\[copa\]".*its quotes were lost on the way: docs/gpus.md'):
        load_config(write(), ["data.tasks=[copa]"])
    with pytest.raises(UserError, match=r"a list, as in --set"):
        load_config(write(), ["data.tasks=copa"])


def test_every_fault_in_one_message(write):
    path = write(
        policy={"modle": "x"},
        data={"tasks": []},
        rollout={"num_generations": 1},
        training={"learning_rate": "fast", "max_stepz": 3},
    )
    message = refusal(path)
    assert "5 faults" in message
    for where in ("policy.modle", "data:", "rollout.num_generations", "training.learning_rate", "training.max_stepz"):
        assert where in message


def test_missing_section_and_key_are_named(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"policy": {}, "data": {"tasks": ["sst2"]}, "training": {"max_steps": 1}}', encoding="utf-8")
    message = refusal(path)
    assert "task_model: missing" in message
    assert "policy.model: missing" in message


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", '{"seed": 1,}'])
def test_not_json(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    message = refusal(path)
    assert "not JSON" in message
    assert str(path) in message


@pytest.mark.parametrize(
    ("text", "kind"),
    [("[1]", "a list"), ("null", "null"), ("5", "a number"), ("0.5", "a number"), ("true", "true"), ('"a"', "a text")],
)
def test_file_without_an_object(tmp_path, text, kind):
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    message = refusal(path)
    assert f"the file holds {kind}; the rule is one JSON object of sections" in message
    assert "configs/" in message


def test_repeated_key_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"training": {"max_steps": 1, "max_steps": 2}}', encoding="utf-8")
    assert "'max_steps' is given twice" in refusal(path)


def test_missing_file_folder_and_other_encoding(tmp_path):
    latin = tmp_path / "latin.json"
    latin.write_bytes('{"run_name": "café"}'.encode("latin-1"))
    for path in (tmp_path / "absent.json", tmp_path, latin):
        message = refusal(path)
        assert str(path) in message
        assert "cannot be read" in message


def test_set_with_section_without_section_and_top_level(write):
    config = load_config(
        write(), ["training.max_steps=4", "num_generations=16", "run_name=try", "seed=3", 'tasks=["sst2"]']
    )
    assert config.training.max_steps == 4
    assert config.rollout.num_generations == 16
    assert (config.run_name, config.seed, config.data.tasks) == ("try", 3, ["sst2"])


def test_set_keeps_equals_signs_and_the_last_one_wins(write):
    config = load_config(write(), ["instruction=x = y", "seed=1", "seed=2"])
    assert config.data.instruction == "x = y"
    assert config.seed == 2


def test_set_null_takes_a_value_away(write):
    config = load_config(write(), ["max_steps=null", "num_train_epochs=2"])
    assert config.training.max_steps is None
    assert config.training.num_train_epochs == 2


def test_set_of_an_ambiguous_key_names_the_sections(write):
    message = refusal(write(), "temperature=0.5")
    assert "rollout.temperature" in message
    assert "task_model.temperature" in message


def test_set_of_an_unknown_key_names_the_nearest(write):
    assert "did you mean training.max_steps?" in refusal(write(), "max_step=4")
    assert "did you mean training.max_steps?" in refusal(write(), "training.max_step=4")
    assert "trainin" in refusal(write(), "trainin.max_steps=4")


@pytest.mark.parametrize("override", ["max_steps", "=4", ""])
def test_set_without_key_or_value(write, override):
    assert "the rule is key=value" in refusal(write(), override)


def test_set_is_checked_like_the_file(write):
    assert "rollout.num_generations" in refusal(write(), "num_generations=1")
    assert "training.max_steps" in refusal(write(), "max_steps=many")


@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 50}, {"min_p": 0.1}])
def test_cut_sampling_needs_the_correction_off(write, cut):
    (name,) = cut
    message = refusal(write(rollout=cut))
    assert name in message
    assert "sampler_correction" in message
    load_config(write(rollout=cut, loss={"sampler_correction": "none"}))


def test_whole_distribution_spelled_out_is_no_cut(write):
    load_config(write(rollout={"top_p": 1.0, "top_k": 0, "min_p": 0.0}))


@pytest.mark.parametrize("loss_type", ["dapo", "dr_grpo", "cispo", "sapo"])
def test_sequence_ratio_is_refused_with_token_summed_losses(write, loss_type):
    message = refusal(write(loss={"importance_sampling_level": "sequence", "loss_type": loss_type}))
    assert "importance_sampling_level" in message
    load_config(write(loss={"importance_sampling_level": "sequence", "loss_type": "grpo"}))


def test_one_run_length(write):
    assert "one of the three" in refusal(write(training={"num_train_epochs": 1}))
    assert "one of the three" in refusal(write(), "max_steps=null")


def test_a_running_endpoint_has_no_gpus_to_give(write):
    gpus = "task_model.gpus=[1]"
    assert "leave one of them null" in refusal(write(), "base_url=http://localhost:8000/v1", gpus)
    load_config(write(), ["base_url=null", gpus])


@pytest.mark.parametrize("host", ["exa mple..com", f"{'a' * 64}.com"])
def test_a_host_that_no_name_server_can_be_asked_for_is_refused(write, host):
    assert "is no plain address" in refusal(write(), f"base_url=http://{host}/v1")


@pytest.mark.parametrize(
    "address",
    [
        "localhost:8000",
        "",
        "http://",
        "http://h/v1,http://i/v1",
        "http://host/v1 ",
        "ftp://host/v1",
        "http://[::1/v1",
        "http://h:x/v1",
    ],
)
def test_an_endpoint_is_a_whole_address(write, address):
    assert "no plain address, as http://host:8000/v1" in refusal(write(task_model={"base_url": address}))


def test_a_model_has_a_name(write):
    assert "policy.model: given" in refusal(write(policy={"model": ""}))
    assert "task_model.model is empty" in refusal(write(task_model={"model": " "}))


def test_half_a_character_is_told_with_its_place(write):
    path = write(data={"instruction": "Say \ud83d."}, custom_tasks=[{"name": "\udcff"}])
    assert f"config {path}: data.instruction, custom_tasks.0.name: half a character" in refusal(path)
    assert "the key \\udcff: half a character" in refusal(write(**{"\udcff": 1}))
    assert "run_name: half a character" in refusal(write(), "run_name=\udcff")  # bytes of a command line, no UTF-8


def test_a_gpu_is_named_once(write):
    assert "names a GPU twice" in refusal(write(), "base_url=null", "task_model.gpus=[1,0,1]")


def test_gradients_in_bfloat16_are_for_weights_in_bfloat16(write):
    assert "grad_accum_dtype=bfloat16 with dtype=float32" in refusal(
        write(), "policy.dtype=float32", "grad_accum_dtype=bfloat16"
    )
    load_config(write(), ["grad_accum_dtype=bfloat16", "zero_stage=1"])


def test_offload_takes_zero_3_and_float32_sums(write):
    assert "offload_optimizer with zero_stage=1" in refusal(write(), "offload_optimizer=true", "zero_stage=1")
    assert "with offload_optimizer" in refusal(write(), "offload_optimizer=true", "grad_accum_dtype=bfloat16")
    load_config(write(), ["offload_optimizer=true", "zero_stage=3"])


def test_settings_that_would_do_nothing_together_are_refused(write):
    assert "of a forced choice" in refusal(write(), "label_logprobs=true", "scoring=free_text")
    load_config(write(), ["label_logprobs=true"])


def test_one_source_of_instructions(write):
    assert "one of them" in refusal(write(data={"instructions_file": "rows.jsonl"}))
    assert "one of them" in refusal(write(data={"tasks": []}))
    faulty = write(data={"tasks": [], "instructions_file": "rows.jsonl", "instruction": "Do it."})
    assert "brings its own instructions" in refusal(faulty)


def test_reward_weights_and_parameters_match_the_functions(write):
    assert "2 `reward_weights` for 1" in refusal(write(reward={"reward_weights": [1.0, 0.5]}))
    assert "is empty" in refusal(write(reward={"reward_funcs": []}))
    assert "leak" in refusal(write(reward={"reward_kwargs": {"leak": {}}}))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_run_name_is_one_folder(write, name):
    assert "run_name" in refusal(write(run_name=name))


def test_whole_groups_over_the_ranks(write):
    # 4 x 3 x 2 ranks = 24 rollouts: 3 groups of 8; on 1 rank 12, which is no whole number of them
    config = load_config(write(training={"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3}))
    check_world(config, 2)
    with pytest.raises(UserError, match=r"12 rollouts .*num_generations 8"):
        check_world(config, 1)


def test_dump_reads_back_as_the_same_config(write, tmp_path):
    config = load_config(write(data={"instruction": "Résumé – “quoted”"}))
    again = tmp_path / "again.json"
    again.write_text(dump_config(config), encoding="utf-8")
    assert load_config(again) == config
    assert config_hash(load_config(again)) == config_hash(config)
    assert config_hash(load_config(again, ["seed=9"])) != config_hash(config)


def test_key_itself_never_enters_the_dump(write, monkeypatch):
    monkeypatch.setenv("TASK_KEY", "sk-secret")
    dumped = dump_config(load_config(write(task_model={"api_key_env": "TASK_KEY"})))
    assert "TASK_KEY" in dumped
    assert "sk-secret" not in dumped


def test_table_explains_every_setting():
    table = config_table()
    for section, info in Config.model_fields.items():
        settings = getattr(info.annotation, "model_fields", None)
        for key in settings or [section]:
            assert f"| `{key}` |" in table
    cells = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
    assert cells == {4}, "a row of Markdown is one line of three cells"


@pytest.mark.parametrize("name", ["dapoo", "my_losses:", ":loss"])
def test_a_loss_is_one_of_the_table_or_named_as_ones_own(write, name):
    message = refusal(write(loss={"loss_type": name}))
    assert f"loss.loss_type: {name!r} is no loss" in message
    assert ("did you mean dapo?" in message) == (name == "dapoo")


@pytest.mark.parametrize("name", ["no_such_module:loss", "tests.test_config_loading:no_such_loss"])
def test_a_loss_of_ones_own_has_to_be_there_before_a_run_starts(write, name):
    config = load_config(write(loss={"loss_type": name}))  # evaluate.py reads it too, and trains nothing
    with pytest.raises(UserError, match=r"there is no module|has no function"):
        check_world(config, 1)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"training": {"max_steps": ' + "9" * 5000 + "}}"])
def test_a_file_nested_too_deeply_or_with_an_endless_number_is_refused(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    assert "not JSON that can be read" in refusal(path)


@pytest.mark.parametrize("given", [f"max_steps={10**23}", f"seed={2**63}", "num_train_epochs=1e300"])
def test_a_number_that_nothing_could_count_to_is_refused(write, given):
    steps = ["max_steps=null"] if given.startswith("num_train_epochs") else []
    assert "the rule: Input should be less than or equal to" in refusal(write(), *steps, given)


def test_a_set_value_nested_too_deeply_is_refused(write):
    assert "--set data.tasks: the value is no JSON that can be read" in refusal(write(), "data.tasks=" + "[" * 100_000)


def test_what_json_can_hold_and_settings_cannot_is_refused(write):
    assert "data.instruction: given a list of 1" in refusal(write(), "data.instruction=" + "[" * 900 + "]" * 900)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"max_tokens": "limit", "n": "limit"}, "limit"),
        ({"max_tokens": "n"}, "n"),
        ({"seed": "messages"}, "messages"),
        ({"max_tokens": "top_k"}, "top_k"),
    ],
)
def test_no_two_request_fields_have_one_name(write, fields, name):
    message = refusal(write(task_model={"request_fields": fields}))
    assert f"`request_fields` give {name} to more than one field" in message


@pytest.mark.parametrize(
    "fields", [{"max_tokens": "n", "n": None}, {"n": None, "seed": None}, {"n": "seed", "seed": "n"}]
)
def test_request_fields_may_change_places_and_be_left_out(write, fields):
    load_config(write(task_model={"request_fields": fields}))
