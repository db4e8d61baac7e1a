"""What tests of several files share."""

import signal

import pytest

from tests.launching import MODEL

LAYERS = 4

# A shell starts its background jobs with Ctrl-C ignored, and what the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shallow_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of SmolLM2's first layers: real weights, for tests to whom it does not matter what the model says."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = str(tmp_path_factory.mktemp("shallow_model"))
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)
    model.model.layers = model.model.layers[:LAYERS]
    model.config.num_hidden_layers = LAYERS
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(MODEL).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a random model of two layers, whose four heads two ranks can share."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    folder = str(tmp_path_factory.mktemp("random_model"))
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    torch.manual_seed(0)
    shape = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = LlamaConfig(vocab_size=len(tokenizer), tie_word_embeddings=True, **shape, **heads, **ids)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
