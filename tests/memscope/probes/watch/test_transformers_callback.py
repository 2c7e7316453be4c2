"""The Trainer callback, driven as a Trainer drives it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from memscope.events import Kind
from memscope.probes.watch.transformers_callback import trainer_callback
from memscope.reader.recording import open_recording
from memscope.recorder.recorder import Recorder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def test_a_training_is_watched_from_its_begin_to_its_end(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state, path = SimpleNamespace(epoch=0), tmp_path / "run.mscope"
    with Recorder(path) as recorder:
        callback = trainer_callback(recorder, layers=None)
        assert isinstance(callback, transformers.TrainerCallback)
        wrapped = SimpleNamespace(optimizer=optimizer)
        callback.on_train_begin(None, state, None, model=model, optimizer=wrapped)
        callback.on_epoch_begin(None, state, None, model=model)
        for _ in range(3):
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
        callback.on_train_end(None, state, None, model=model)
        optimizer.step()
    with open_recording(path) as recording:
        kinds = [kind for batch in recording.batches() for kind in batch["kind"].tolist()]
    assert kinds.count(Kind.STEP) == 3
    assert kinds.count(Kind.MARK) == 1
    assert not model._forward_hooks


def test_without_a_recorder_a_training_goes_on():
    callback = trainer_callback(layers=None)
    callback.on_train_begin(None, None, None, model=torch.nn.Linear(1, 1), optimizer=None)
    callback.on_evaluate(None, None, None)
    callback.on_train_end(None, None, None)


def test_a_real_trainer_runs_with_it(tmp_path):
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, report_to=[], use_cpu=True, save_strategy="no"
    )
    config = transformers.Qwen3Config(
        vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=1, num_key_value_heads=1, head_dim=8,
    )  # fmt: skip
    row = {"input_ids": [1, 2, 3], "labels": [1, 2, 3]}
    with Recorder(tmp_path / "run.mscope") as recorder:
        transformers.Trainer(
            transformers.Qwen3ForCausalLM(config),
            arguments,
            train_dataset=[row] * 4,
            callbacks=[trainer_callback(recorder)],
        ).train()
    with open_recording(tmp_path / "run.mscope") as recording:
        kinds = [kind for batch in recording.batches() for kind in batch["kind"].tolist()]
    assert kinds.count(Kind.STEP) == 2
