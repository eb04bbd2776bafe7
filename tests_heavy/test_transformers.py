"""Hugging Face's Trainer: the subclass of docs/trainers.md takes the steps of a bare loop."""

import os
import re
from pathlib import Path

import pytest
import torch

from firstish import ScaledGD

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers", reason="make test-all installs transformers")
pytest.importorskip("accelerate", reason="make test-all installs accelerate")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*pin_memory.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
PAGE = Path(__file__).parents[1] / "docs" / "trainers.md"
ROWS, BATCH, LENGTH = 12, 6, 7


def subclasses():
    """The classes as the page prints them."""
    (text,) = re.findall(
        r"```python\n([^`]*?class ClosureTrainer.*?)```", PAGE.read_text(encoding="utf-8"), re.S
    )
    scope = {}
    exec(text.partition("\nmodel =")[0], scope)
    return scope["WithClosure"], scope["ClosureTrainer"]


def classifier(dropout=0.0, attention="sdpa"):
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=2,
        attn_implementation=attention,
    )
    return transformers.BertForSequenceClassification(config)


def language_model():
    """Its loss divides by the labels of the whole step: the micro-batches differ in those."""
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    return transformers.LlamaForCausalLM(config)


def rows(kind):
    torch.manual_seed(4)
    words = torch.randint(1, 20, (ROWS, LENGTH))
    if kind == "classifier":  # with rows that contradict each other: no step ends at a loss of 0
        words[1::4] = words[::4]
        return [{"input_ids": w, "labels": torch.tensor(k % 2)} for k, w in enumerate(words)]
    labels = words.clone()
    for k in range(ROWS):
        labels[k, 1 : 1 + k // 3] = -100  # not predicted
    return [{"input_ids": w, "labels": y} for w, y in zip(words, labels, strict=True)]


def collated(some):
    return {name: torch.stack([row[name] for row in some]) for name in some[0]}


def arguments(folder, **options):
    settings = {
        "per_device_train_batch_size": BATCH,
        "num_train_epochs": 3,
        "lr_scheduler_type": "constant",
        "report_to": [],
        "use_cpu": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "train_sampling_strategy": "sequential",
    }
    return transformers.TrainingArguments(output_dir=str(folder), **{**settings, **options})


def trained(folder, model, data, resume=None, **options):
    scheduler = options.pop("scheduler", None)
    optimizer_class, trainer_class = subclasses()
    optimizer = optimizer_class(model.parameters(), method="CGMR")
    trainer = trainer_class(
        model=model,
        args=arguments(folder, **options),
        train_dataset=data,
        data_collator=collated,
        optimizers=(optimizer, scheduler and scheduler(optimizer)),
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def parameters(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def bare(model, data, loss_of, steps, whole=BATCH):
    """A closure that calls backward, in an ordinary loop; the losses before each step."""
    optimizer = ScaledGD(model.parameters(), method="CGMR")
    batches = [data[k : k + whole] for k in range(0, len(data), whole)]
    model.train()
    found = []
    for k in range(steps):
        chosen = batches[k % len(batches)]

        def closure(batch=chosen):
            model.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        found.append(optimizer.step(closure).item())
    return found


def mean_loss(model, some):
    return model(**collated(some)).loss


@pytest.mark.parametrize("batch", [BATCH, ROWS])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_it_takes_the_steps_of_a_bare_loop_to_the_bit(tmp_path, attention, batch):
    data, twin = rows("classifier"), classifier(attention=attention)
    model = classifier(attention=attention)
    trainer = trained(tmp_path, model, data, per_device_train_batch_size=batch, max_steps=6)
    expected = bare(twin, data, mean_loss, steps=6, whole=batch)
    assert torch.equal(parameters(model), parameters(twin))
    assert losses(trainer) == pytest.approx(expected, rel=1e-4)  # as many digits as it logs
    assert trainer.state.global_step == 6
    if batch == ROWS:
        assert expected == sorted(expected, reverse=True)


def test_its_log_has_the_gradients_norm(tmp_path):
    trainer = trained(tmp_path, classifier(), rows("classifier"))
    optimizer = trainer.optimizer.optimizer
    logged = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
    assert logged[-1] == pytest.approx(optimizer.last_step.grad_norm, rel=1e-3)


@pytest.mark.parametrize("kind", ["classifier", "language model"])
def test_accumulated_micro_batches_are_one_batch(tmp_path, kind):
    build = classifier if kind == "classifier" else language_model
    data, twin = rows(kind), build()
    trainer = trained(
        tmp_path, build(), data, per_device_train_batch_size=3, gradient_accumulation_steps=4
    )
    # Trainer adds the losses up where a model may divide by the items of a step, as language models
    # do. This classifier does not, so Trainer's loss is the sum of four means.
    factor = 4 if kind == "classifier" else 1
    expected = bare(twin, data, lambda *a: factor * mean_loss(*a), steps=3, whole=ROWS)
    assert trainer.state.global_step == 3
    assert losses(trainer) == pytest.approx(expected, rel=2e-3)
    assert expected[-1] < expected[0]
    apart = torch.linalg.norm(parameters(trainer.model) - parameters(twin))
    moved = torch.linalg.norm(parameters(build()) - parameters(twin))
    assert apart < 0.01 * moved


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_checkpoint_goes_on_to_the_same_numbers(tmp_path, dropout):
    data = rows("classifier")
    options = {"save_strategy": "steps", "save_steps": 2, "num_train_epochs": 3}
    whole = trained(tmp_path / "a", classifier(dropout), data, **options)
    again = classifier(dropout)
    with torch.no_grad():
        for p in again.parameters():
            p.zero_()  # what is needed is in the checkpoint
    rest = trained(
        tmp_path / "b", again, data, resume=str(tmp_path / "a" / "checkpoint-2"), **options
    )
    assert torch.equal(parameters(rest.model), parameters(whole.model))
    assert losses(rest) == losses(whole)
    assert rest.optimizer.optimizer.last_step.iteration == 5


def test_a_schedule_is_that_of_the_first_trial_step(tmp_path):
    def halving(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)

    trainer = trained(tmp_path, classifier(), rows("classifier"), scheduler=halving)
    rates = [e["learning_rate"] for e in trainer.state.log_history if "learning_rate" in e]
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


def test_bf16_trains_float32_parameters_and_its_noise_is_noticed(tmp_path):
    options = {"bf16": True, "per_device_train_batch_size": ROWS, "num_train_epochs": 8}
    trainer = trained(tmp_path, classifier(), rows("classifier"), **options)
    optimizer = trainer.optimizer.optimizer
    assert optimizer._objective.eps == torch.finfo(torch.bfloat16).eps
    assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
    found = losses(trainer)
    assert found[-1] < found[0]


def test_the_plain_trainer_is_told_what_it_lacks(tmp_path):
    model = classifier()
    trainer = transformers.Trainer(
        model=model,
        args=arguments(tmp_path),
        train_dataset=rows("classifier"),
        data_collator=collated,
        optimizers=(ScaledGD(model.parameters(), method="CGMR"), None),
    )
    with pytest.raises(ValueError, match=r"Hugging Face.*docs/trainers\.md"):
        trainer.train()
