import json
import socket

from tpkd.training.board import Board


def test_event_files_are_numbered_and_do_not_name_the_machine(tmp_path):
    for step in (0, 3):
        board = Board(tmp_path / "tensorboard", step)
        board.add("train/loss", 1.0, step + 1)
        board.close()
    found = sorted((tmp_path / "tensorboard").iterdir())
    assert [path.name for path in found] == ["events.out.tfevents.000001", "events.out.tfevents.000002"]
    assert not any(socket.gethostname().encode() in path.read_bytes() for path in found)


def test_a_later_start_hides_what_an_earlier_one_wrote_about_its_steps(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for start, values in ((0, (1.0, 2.0, 3.0)), (1, (7.0,))):
        board = Board(tmp_path, start)
        for step, value in enumerate(values, start=start + 1):
            board.add("loss", value, step)
        board.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 1.0), (2, 7.0)]


def test_curves_are_laid_out_as_tensorboard_reads_it(tmp_path):
    """Through TensorBoard's own plugin: charts by their titles, each with the curves of its exact names."""
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.custom_scalar.custom_scalars_plugin import CustomScalarsPlugin

    for run in ("a", "b"):
        for start in (0, 2):
            board = Board(tmp_path / run, start)
            board.lay_out("tpkd", {"Loss": ["train/loss"], "Price": ["monitor/transfer_cost"]})
            board.add("train/loss", 1.0, start + 1)
            board.close()
    multiplexer = EventMultiplexer({run: str(tmp_path / run) for run in ("a", "b")}).Reload()
    provider = MultiplexerDataProvider(multiplexer, str(tmp_path))
    plugin = CustomScalarsPlugin(TBContext(data_provider=provider, multiplexer=multiplexer, logdir=str(tmp_path)))
    (category,) = json.loads(plugin.layout_impl(RequestContext(), ""))["category"]
    assert category["title"] == "tpkd"
    found = {chart["title"]: chart["multiline"]["tag"] for chart in category["chart"]}
    assert found == {"Loss": ["^train/loss$"], "Price": ["^monitor/transfer_cost$"]}
    assert "train/loss" in multiplexer.PluginRunToTagToContent("scalars")["a"]
