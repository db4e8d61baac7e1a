"""Settings that one objective alone reads, and the other refuses: nobody is to believe that they do something."""

from collections.abc import Iterator, Mapping

from prewrite.config.base import Section

READ_BY: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "rewrite": {
        "data": ("instruction", "instructions_file"),
        "rollout": ("meta_instruction", "context_share", "context_tried", "context_failures"),
        "reward": ("examples_per_rewrite",),
        "selection": ("race_share", "test_size", "metric", "num_parents"),
        "budget": ("max_task_calls",),
        "evaluation": ("benchmarks",),
    },
    "solve": {
        "data": ("instruction_suffix", "answer_pattern", "task_weights", "max_train_rows", "set_aside_passes"),
    },
}


def refused_settings(objective: str, config: Section) -> Iterator[str]:
    """A fault for each setting of another objective that is not at its default."""
    for other, by_section in READ_BY.items():
        for name, keys in by_section.items() if other != objective else ():
            section: Section = getattr(config, name)
            defaults = {key: field.default for key, field in type(section).model_fields.items()}
            for key in keys:
                if getattr(section, key) != defaults[key]:
                    yield f"{name}.{key} is read by objective={other} alone, and this is {objective}: leave it out"
